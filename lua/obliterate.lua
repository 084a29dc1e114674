-- Take a whole paused queue away, at most `budget` jobs a call. Streams and the flow outbox stay: they belong to others.
-- KEYS: meta        ARGV: base, force ("1" or "0"), budget
-- Replies: 0 gone; 1 call again; EMQSTATE not paused; EMQSTATE active jobs present; EMQLOCK without force, where a worker's
--          lock stands on one of those that would go now.
--#include lib/row.lua
local base, budget = ARGV[1], tonumber(ARGV[3])
expect(KEYS[1], 'hash')
if redis.call('HEXISTS', KEYS[1], 'paused') == 0 then return redis.error_reply('EMQSTATE not paused') end
for _, name in ipairs({ 'active', 'pending', 'schedule', 'dead', 'repeat' }) do expect(base .. name, 'zset') end
for _, name in ipairs({ 'gactive', 'glimit', 'gweight' }) do expect(base .. name, 'hash') end
expect(base .. 'paused', 'set')
expect(base .. 'ring', 'list')
expect_rights(base .. 'active', 'UNLINK', 'ZREM')
if ARGV[2] ~= '1' and redis.call('ZCARD', base .. 'active') > 0 then
  return redis.error_reply('EMQSTATE active jobs present')
end

-- Every lane is named in at least one of these: on the ring, paused, limited, weighted or in flight.
local seen, sets = {}, { base .. 'active', base .. 'pending', base .. 'schedule', base .. 'dead' }
local function note(groups)
  for _, group in ipairs(groups) do
    if not seen[group] and is_id(group, 'GRP') then
      seen[group] = true
      expect(lane_key(base, group), 'zset')
      sets[#sets + 1] = lane_key(base, group)
    end
  end
end
note(redis.call('LRANGE', base .. 'ring', 0, -1))
note(redis.call('SMEMBERS', base .. 'paused'))
for _, name in ipairs({ 'glimit', 'gweight', 'gactive' }) do note(redis.call('HKEYS', base .. name)) end

if ARGV[2] ~= '1' then
  local seen_jobs = 0
  for _, set in ipairs(sets) do
    if seen_jobs >= budget then break end
    local ids = redis.call('ZRANGE', set, 0, budget - seen_jobs - 1)
    for _, id in ipairs(ids) do
      if is_held(base .. 'job:' .. id) then return redis.error_reply('EMQLOCK ' .. shown(id) .. ' is locked') end
    end
    seen_jobs = seen_jobs + #ids
  end
end

local removed = 0
for _, set in ipairs(sets) do
  while removed < budget do
    local ids = redis.call('ZRANGE', set, 0, math.min(budget - removed, 500) - 1)
    if #ids == 0 then break end
    redis.call('ZREM', set, unpack(ids))
    for _, id in ipairs(ids) do
      if is_id(id, 'JOB') then delete_row(base .. 'job:' .. id) end
    end
    removed = removed + #ids
  end
  if removed >= budget then return 1 end
end
for _, name in ipairs(redis.call('ZRANGE', base .. 'repeat', 0, -1)) do redis.call('UNLINK', base .. 'repeat:' .. name) end
for _, name in ipairs({ 'repeat', 'ring', 'paused', 'glimit', 'gactive', 'gweight', 'wake', 'metrics:completed', 'metrics:failed', 'meta' }) do
  redis.call('UNLINK', base .. name)
end
return 0
