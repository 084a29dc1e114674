#!lua flags=no-writes
-- Who fires a queue's repeatables, as their next instants tell: each beside the one that we set or saw last.
-- KEYS: repeat, our own `repeat`, our own `cron`        ARGV: base, how many at most
-- Replies: {now, repeatables, by the calendar, then of each, soonest first: name, score, mark ("" none), every_ms ("" none)}.
--#include lib/check.lua
for i, kind in ipairs({ 'zset', 'hash', 'zset' }) do expect(KEYS[i], kind) end
local out = { digits(now_ms()), redis.call('ZCARD', KEYS[1]), redis.call('ZCARD', KEYS[3]) }
if out[2] == 0 then return out end
local entries = redis.call('ZRANGE', KEYS[1], 0, tonumber(ARGV[2]) - 1, 'WITHSCORES')
for i = 1, #entries, 2 do
  local every = redis.pcall('HGET', ARGV[1] .. 'repeat:' .. entries[i], 'every_ms')
  local told = { entries[i], entries[i + 1], redis.call('HGET', KEYS[2], entries[i]) or '', type(every) == 'string' and every or '' }
  for _, text in ipairs(told) do out[#out + 1] = text end
end
return out
