-- Register a repeatable, due at once; or give one that lives another period and template: its next occurrence stays where
-- it is, but is never further away than one period (one that is no instant of our days is a period away).
-- KEYS: repeat, repeat:<name>        ARGV: name, every ms, template
-- Replies: 1 it is new; 0 it lived.
--#include lib/check.lua
expect(KEYS[1], 'zset')
expect_rights(KEYS[1], 'HSET', 'ZADD')
local lived = expect(KEYS[2], 'hash')
local following = now_ms() + (lived and tonumber(ARGV[2]) or 0)
local due = redis.call('ZSCORE', KEYS[1], ARGV[1])
local at = due and tonumber(due)
if at and at >= MIN_MS then following = math.min(following, at) end
redis.call('HSET', KEYS[2], 'every_ms', ARGV[2], 'template', ARGV[3])
redis.call('ZADD', KEYS[1], digits(following), ARGV[1])
return lived and 0 or 1
