#!lua flags=no-writes
-- Whether work waits in a queue that nobody does: a few sizes, at one moment.
-- KEYS: pending, active, meta, repeat, ring, glimit, gactive, metrics:completed, metrics:failed        ARGV: base
-- Replies: {now, waiting in pending, in flight, 1 if paused, ceiling ("" none), next instant of the repeatable that is
--          due first ("" none), its name, waiting in lanes, lanes with work, those of them at their limit, completed,
--          failed, first pending id}. At most 1,000 lanes are looked at. EMQDATA.
--#include lib/lanes.lua
local base = ARGV[1]
local kinds = { 'zset', 'zset', 'hash', 'zset', 'list', 'hash', 'hash', 'hash', 'hash' }
for i, kind in ipairs(kinds) do expect(KEYS[i], kind) end

local seen, in_lanes, lanes, full = {}, 0, 0, 0
local function count(groups)
  for i = 1, math.min(#groups, 1000) do
    local group = groups[i]
    if not seen[group] and is_id(group, 'GRP') then
      seen[group] = true
      local depth = redis.pcall('ZCARD', lane_key(base, group))
      if type(depth) == 'number' and depth > 0 then
        in_lanes, lanes = in_lanes + depth, lanes + 1
        if not below_limit(base, group) then full = full + 1 end
      end
    end
  end
end
count(redis.call('LRANGE', KEYS[5], 0, 999))
count(redis.call('HKEYS', KEYS[6]))
count(redis.call('HKEYS', KEYS[7]))

local due = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
return {
  digits(now_ms()), redis.call('ZCARD', KEYS[1]), redis.call('ZCARD', KEYS[2]), redis.call('HEXISTS', KEYS[3], 'paused'),
  redis.call('HGET', KEYS[3], 'concurrency') or '', due[2] or '', due[1] or '', in_lanes, lanes, full,
  redis.call('HGET', KEYS[8], 'count') or '0', redis.call('HGET', KEYS[9], 'count') or '0',
  redis.call('ZRANGE', KEYS[1], 0, 0)[1] or '',
}
