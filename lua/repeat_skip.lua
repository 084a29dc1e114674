-- A repeatable's next occurrence is a period from now; the one that was due does not come.
-- KEYS: repeat, repeat:<name>        ARGV: base, name, period (ms)
-- Replies: 1; 0 there is none of that name (an entry without one is taken away).
--#include lib/repeat.lua
local base, name = ARGV[1], ARGV[2]
expect(KEYS[1], 'zset')
expect_rights(KEYS[1], 'ZADD', 'ZREM')
if not expect(KEYS[2], 'hash') then
  redis.call('ZREM', KEYS[1], name)
  mark_repeatable(base, name, nil)
  return 0
end
local following = digits(now_ms() + tonumber(ARGV[3]))
redis.call('ZADD', KEYS[1], following, name)
mark_repeatable(base, name, following)
return 1
