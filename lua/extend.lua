-- Extend one lease.
-- KEYS: active, row        ARGV: id, token, lease ms
-- Replies: 1; -1 no row; EMQSTALE wrong token; -3 not in active (a reaped lease is not revived).
--#include lib/check.lua
local id = ARGV[1]
if not expect(KEYS[2], 'hash') then return -1 end
if attempts_of(KEYS[2], redis.call('HGET', KEYS[2], 'attempts')) ~= tonumber(ARGV[2]) then
  return redis.error_reply('EMQSTALE extend token mismatch')
end
expect(KEYS[1], 'zset')
if not redis.call('ZSCORE', KEYS[1], id) then return -3 end
redis.call('ZADD', KEYS[1], digits(now_ms() + tonumber(ARGV[3])), id)
return 1
