-- Resume a lane: the ring rule puts it back where it has work.
-- KEYS: paused        ARGV: base, group
-- Replies: 1.
--#include lib/lanes.lua
expect_lane(ARGV[1], ARGV[2], true)
expect_rights(KEYS[1], 'SREM')
redis.call('SREM', KEYS[1], ARGV[2])
ring_rule(ARGV[1], ARGV[2])
return 1
