-- Cancel a repeatable.
-- KEYS: repeat, repeat:<name>        ARGV: name
-- Replies: 1; 0 there is none of that name.
--#include lib/check.lua
expect(KEYS[1], 'zset')
expect_rights(KEYS[1], 'UNLINK', 'ZREM')
local listed = redis.call('ZREM', KEYS[1], ARGV[1])
local kept = redis.call('UNLINK', KEYS[2])
return math.max(listed, kept)
