-- Register a repeatable, due at once; or give one that lives another period and template: its next occurrence stays where
-- it is, but is never further away than one period (one that is no instant of our days is a period away). One that goes by
-- the calendar stands under names of ours alone; its next instant is told by the calendar, unless that is as it was.
-- KEYS: repeat, repeat:<name>, our own `repeat:<name>`, our own `cron`
-- ARGV: base, name, every ms ("" by the calendar), template, lane ("" flat), cron line, zone
-- Replies: 1 it is new; 0 it lived.
--#include lib/repeat.lua
local base, name, every, template, lane, cron, zone = unpack(ARGV)
expect(KEYS[1], 'zset')
expect_rights(KEYS[1], 'HSET', 'UNLINK', 'ZADD', 'ZREM')
local lived = expect(KEYS[2], 'hash')
if cron ~= '' or lane ~= '' or expect(KEYS[3], 'hash') or redis.call('EXISTS', KEYS[4]) == 1 then expect_ours(base, name) end
local told = redis.call('HMGET', KEYS[3], 'cron', 'zone')
local now = now_ms()
if cron ~= '' then
  lived = lived or told[1] ~= false
  if told[1] ~= cron or told[2] ~= zone or not redis.call('ZSCORE', KEYS[4], name) then redis.call('ZADD', KEYS[4], 0, name) end
  redis.call('ZREM', KEYS[1], name)
  redis.call('UNLINK', KEYS[2], KEYS[3])
  redis.call('HSET', KEYS[3], 'template', template, 'cron', cron, 'zone', zone)
  mark_repeatable(base, name, nil)
else
  local following = now + (lived and tonumber(every) or 0)
  local due = redis.call('ZSCORE', KEYS[1], name)
  local at = due and tonumber(due)
  if at and at >= MIN_MS then following = math.min(following, at) end
  redis.call('HSET', KEYS[2], 'every_ms', every, 'template', template)
  redis.call('ZADD', KEYS[1], digits(following), name)
  if redis.call('EXISTS', KEYS[3]) == 1 then redis.call('UNLINK', KEYS[3]) end
  if redis.call('EXISTS', KEYS[4]) == 1 then redis.call('ZREM', KEYS[4], name) end
  mark_repeatable(base, name, digits(following), true)
end
if lane ~= '' then redis.call('HSET', KEYS[3], 'lane', lane) end
return lived and 0 or 1
