-- Set a lane's weight, or take it away.
-- KEYS: gweight        ARGV: group, weight ("" takes it away)
-- Replies: 1.
--#include lib/check.lua
expect(KEYS[1], 'hash')
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1
