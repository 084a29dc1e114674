-- Set a lane's ceiling of jobs in flight, or take it away.
-- KEYS: glimit        ARGV: base, group, limit ("" takes it away)
-- Replies: 1.
--#include lib/lanes.lua
local base, group = ARGV[1], ARGV[2]
expect_lane(base, group, true)
expect_rights(KEYS[1], 'HDEL', 'HSET')
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], group)
else
  redis.call('HSET', KEYS[1], group, ARGV[3])
end
if not below_limit(base, group) then redis.call('LREM', base .. 'ring', 0, group) end
ring_rule(base, group)
return 1
