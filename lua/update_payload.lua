-- Replace a job's payload.
-- KEYS: row        ARGV: payload
-- Replies: 1; -1 no row.
--#include lib/check.lua
if not expect(KEYS[1], 'hash') then return -1 end
redis.call('HSET', KEYS[1], 'payload', ARGV[1])
return 1
