-- Extend many leases by one clock read, as the reference does: without a look at membership. A lease keeper uses `keep`.
-- KEYS: active        ARGV: base, lease ms, then id, token pairs
-- Replies: the ids that were not extended, in order.
--#include lib/check.lua
local base = ARGV[1]
expect(KEYS[1], 'zset')
local deadline = digits(now_ms() + tonumber(ARGV[2]))
local refused, extended = {}, {}
for i = 3, #ARGV, 2 do
  if has_token(base .. 'job:' .. ARGV[i], ARGV[i + 1]) then
    extended[#extended + 1] = ARGV[i]
  else
    refused[#refused + 1] = ARGV[i]
  end
end
for _, id in ipairs(extended) do redis.call('ZADD', KEYS[1], deadline, id) end
return refused
