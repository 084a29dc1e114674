-- Cancel a repeatable.
-- KEYS: repeat, repeat:<name>        ARGV: name
-- Replies: 1; 0 it was not listed (a hash without an entry, which fires never, goes all the same).
--#include lib/check.lua
expect(KEYS[1], 'zset')
expect_rights(KEYS[1], 'UNLINK', 'ZREM')
local listed = redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('UNLINK', KEYS[2])
return listed
