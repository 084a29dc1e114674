#!lua flags=no-writes
-- Whether anybody claims a queue's flat jobs, as far as the wire tells: EchoMQ's Consumer claims lanes only.
-- KEYS: pending, active, stream of completions        ARGV: base, how many to look at
-- Replies: {waiting in pending, of the jobs in flight those without a lane, of the last records those without}. EMQDATA.
--#include lib/check.lua
for i, kind in ipairs({ 'zset', 'zset', 'stream' }) do expect(KEYS[i], kind) end
local most, flat, settled = tonumber(ARGV[2]), 0, 0
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, most - 1)) do
  if redis.pcall('HGET', ARGV[1] .. 'job:' .. id, 'group') == false then flat = flat + 1 end
end
for _, entry in ipairs(redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', most)) do
  local grouped = false
  for i = 1, #entry[2], 2 do grouped = grouped or entry[2][i] == 'group' end
  if not grouped then settled = settled + 1 end
end
return { redis.call('ZCARD', KEYS[1]), flat, settled }
