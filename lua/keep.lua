-- A lease keeper's beat: extends every held lease that is still in active under its token, and freshens its :lock marker.
-- KEYS: active        ARGV: base, lease ms, then id, token pairs
-- Replies: the ids whose lease is gone, in order. One that left active is never put back, and a longer lease (a handler's
--          own checkpoint) is never shortened.
--#include lib/check.lua
local base, lease = ARGV[1], tonumber(ARGV[2])
expect(KEYS[1], 'zset')
expect_rights(KEYS[1], 'SET', 'ZADD')
local deadline = digits(now_ms() + lease)
local lost, held = {}, {}
for i = 3, #ARGV, 2 do
  local id = ARGV[i]
  if has_token(base .. 'job:' .. id, ARGV[i + 1]) and redis.call('ZSCORE', KEYS[1], id) then
    held[#held + 1] = id
  else
    lost[#lost + 1] = id
  end
end
for _, id in ipairs(held) do
  redis.call('ZADD', KEYS[1], 'XX', 'GT', deadline, id)
  redis.call('SET', base .. 'job:' .. id .. ':lock', '1', 'PX', digits(2 * lease))
end
return lost
