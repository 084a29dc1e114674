-- A repeatable's next occurrence is a period from now; the one that was due does not come.
-- KEYS: repeat, repeat:<name>        ARGV: name, period (ms)
-- Replies: 1; 0 there is none of that name (an entry without one is taken away).
--#include lib/check.lua
expect(KEYS[1], 'zset')
expect_rights(KEYS[1], 'ZADD', 'ZREM')
if not expect(KEYS[2], 'hash') then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return 0
end
redis.call('ZADD', KEYS[1], digits(now_ms() + tonumber(ARGV[2])), ARGV[1])
return 1
