#!lua flags=no-writes
-- The repeatables that are due by the server's clock.
-- KEYS: repeat, or our own `cron`        ARGV: base, limit, how many of them to pass over
-- Replies: {now, then of each, longest due first: name, score, cron and zone ("" for one with a period)}.
--#include lib/check.lua
expect(KEYS[1], 'zset')
local now = digits(now_ms())
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', tonumber(ARGV[3]), tonumber(ARGV[2]))
local calendar, out = string.sub(KEYS[1], 1, 8) == 'emq-ops:', { now }
for i = 1, #due, 2 do
  local more = calendar and redis.pcall('HMGET', 'emq-ops:' .. string.sub(ARGV[1], 5) .. 'repeat:' .. due[i], 'cron', 'zone') or {}
  for _, text in ipairs({ due[i], due[i + 1], more[1] or '', more[2] or '' }) do out[#out + 1] = text end
end
return out
