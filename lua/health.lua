#!lua flags=no-writes
-- One look at a queue for its operator: sizes, what is overdue, whether it is paused or led.
-- KEYS: pending, active, schedule, dead, metrics:completed, metrics:failed, meta, repeat, wake, ring, paused, glimit,
--       gactive, gweight, lease, then streams        ARGV: base
-- Replies: {now, pending, active, schedule, dead, completed, failed, paused (0/1), waiting in lanes, how many of the
--          other keys exist, lapsed, overdue, first pending id, first deadline, first due ("" each where there is none),
--          end of the lease ("" none), then the length of each stream}. EMQDATA.
--#include lib/counter.lua
local base, now = ARGV[1], now_ms()
local kinds = {
  'zset', 'zset', 'zset', 'zset', 'hash', 'hash', 'hash', 'zset', 'list', 'list', 'set', 'hash', 'hash', 'hash', 'hash',
}
for i = 1, #KEYS do
  if i ~= 5 and i ~= 6 then expect(KEYS[i], kinds[i] or 'stream') end
end

-- A lane with work is on the ring, paused, at its ceiling or in flight.
local seen, in_lanes = {}, 0
local function count(groups)
  for _, group in ipairs(groups) do
    if not seen[group] and is_id(group, 'GRP') then
      seen[group] = true
      local lane = base .. 'g:' .. group .. ':pending'
      expect(lane, 'zset')
      in_lanes = in_lanes + redis.call('ZCARD', lane)
    end
  end
end
count(redis.call('LRANGE', KEYS[10], 0, -1))
count(redis.call('SMEMBERS', KEYS[11]))
count(redis.call('HKEYS', KEYS[12]))
count(redis.call('HKEYS', KEYS[13]))

local out = {
  now, redis.call('ZCARD', KEYS[1]), redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3]),
  redis.call('ZCARD', KEYS[4]),
  (read_counter(KEYS[5])), (read_counter(KEYS[6])),
  redis.call('HEXISTS', KEYS[7], 'paused'), in_lanes,
  redis.call('EXISTS', KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14]),
  redis.call('ZCOUNT', KEYS[2], '-inf', now), redis.call('ZCOUNT', KEYS[3], '-inf', now),
  redis.call('ZRANGE', KEYS[1], 0, 0)[1] or '', redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or '',
  redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2] or '', redis.call('HGET', KEYS[15], 'until') or '',
}
for i = 16, #KEYS do out[#out + 1] = redis.call('XLEN', KEYS[i]) end
return out
