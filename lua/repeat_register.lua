-- Register a repeatable.
-- KEYS: repeat, repeat:<name>        ARGV: name, every ms, template, first run in ms
-- Replies: 1; 0 the name lives, nothing changed.
--#include lib/check.lua
expect(KEYS[1], 'zset')
expect_rights(KEYS[1], 'HSET', 'ZADD')
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
redis.call('HSET', KEYS[2], 'every_ms', ARGV[2], 'template', ARGV[3])
redis.call('ZADD', KEYS[1], digits(now_ms() + tonumber(ARGV[4])), ARGV[1])
return 1
