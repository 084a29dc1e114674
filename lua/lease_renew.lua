#!lua flags=allow-oom
-- Renew a lease that still stands.
-- KEYS: lease        ARGV: state, token, run id, length ms, count of our database's life ("" as it was)
-- Replies: until (ms); EMQFENCE it stands no more, EMQDATA.
-- Flags: one-key
--#include lib/fence.lua
local now = check_fence(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
local until_ms = now + tonumber(ARGV[4])
redis.call('HSET', KEYS[1], 'until', digits(until_ms), 'ms', digits(tonumber(ARGV[4])))
if (ARGV[5] or '') ~= '' then redis.call('HSET', KEYS[1], 'count', ARGV[5]) end
return until_ms
