-- Take a whole paused queue away, at most `budget` jobs a call. Streams and the flow outbox stay: they belong to others.
-- Parents in other queues hear that the children here died; those of this queue go with their children.
-- KEYS: meta        ARGV: base, force ("1" or "0"), budget, lanes that the caller found besides ...
-- Replies: 0 gone; 1 call again; EMQSTATE not paused; EMQSTATE active jobs present; EMQLOCK without force, where a worker's
--          lock stands on one of those that would go now.
--#include lib/row.lua
--#include lib/flow.lua
local base, budget = ARGV[1], tonumber(ARGV[3])
expect(KEYS[1], 'hash')
if redis.call('HEXISTS', KEYS[1], 'paused') == 0 then return redis.error_reply('EMQSTATE not paused') end
for _, name in ipairs({ 'active', 'pending', 'schedule', 'dead', 'repeat' }) do expect(base .. name, 'zset') end
for _, name in ipairs({ 'gactive', 'glimit', 'gweight' }) do expect(base .. name, 'hash') end
expect(base .. 'paused', 'set')
expect(base .. 'ring', 'list')
expect(base .. 'flow:outbox', 'list')
expect_rights(base .. 'active', 'RPUSH', 'UNLINK', 'ZREM')
if ARGV[2] ~= '1' and redis.call('ZCARD', base .. 'active') > 0 then
  return redis.error_reply('EMQSTATE active jobs present')
end

-- Lanes that live are named in at least one of these: on the ring, paused, limited, weighted or in flight.
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
note({ unpack(ARGV, 4) })
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

-- A job goes, and with it its parent where that waits in this queue; a parent elsewhere hears of it.
local function take_away(id, levels)
  local row = base .. 'job:' .. id
  local values = redis.pcall('HMGET', row, 'parent', 'parent_queue', 'parent_policy')
  delete_row(row)
  local parent = not values.err and parent_of(base, values[1], values[2], values[3])
  if not parent then return end
  if parent.queue then return child_died(base, parent, id, 'obliterated') end
  local waits = is_id(parent.job, 'JOB') and redis.pcall('HGET', base .. 'job:' .. parent.job, 'state')
  if waits == 'awaiting_children' and levels > 0 then take_away(parent.job, levels - 1) end
end

local removed = 0
for _, set in ipairs(sets) do
  while removed < budget do
    local ids = redis.call('ZRANGE', set, 0, math.min(budget - removed, 500) - 1)
    if #ids == 0 then break end
    redis.call('ZREM', set, unpack(ids))
    for _, id in ipairs(ids) do
      if is_id(id, 'JOB') then take_away(id, 16) end
    end
    removed = removed + #ids
  end
  if removed >= budget then return 1 end
end
local ours = 'emq-ops:' .. string.sub(base, 5)
for _, set in ipairs({ base .. 'repeat', ours .. 'cron' }) do
  for _, name in ipairs(redis.call('ZRANGE', set, 0, -1)) do
    redis.call('UNLINK', base .. 'repeat:' .. name, ours .. 'repeat:' .. name)
  end
end
redis.call('UNLINK', ours .. 'cron', ours .. 'repeat')
for _, name in ipairs({ 'repeat', 'ring', 'paused', 'glimit', 'gactive', 'gweight', 'wake', 'metrics:completed', 'metrics:failed', 'meta' }) do
  redis.call('UNLINK', base .. name)
end
return 0
