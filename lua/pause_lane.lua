-- Pause a lane: it leaves the ring; what is in flight goes on.
-- KEYS: paused, ring        ARGV: group
-- Replies: 1.
--#include lib/check.lua
expect(KEYS[1], 'set')
expect(KEYS[2], 'list')
expect_rights(KEYS[2], 'LREM', 'SADD')
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('LREM', KEYS[2], 0, ARGV[1])
return 1
