-- A job that waits in its lane goes to another lane.
-- KEYS: row        ARGV: base, id, group
-- Replies: 1; 0 it is of that lane already; -1 no row, or no lane; -2 it does not wait in its lane; EMQKIND.
--#include lib/lanes.lua
local base, id, target, row = ARGV[1], ARGV[2], ARGV[3], KEYS[1]
expect_job(id)
if not expect(row, 'hash') then return -1 end
local source = redis.call('HGET', row, 'group')
if not source then return -1 end
if source == target then return 0 end
expect_lane(base, source)
expect_lane(base, target)
expect_rights(row, 'HSET', 'ZADD', 'ZREM')
if redis.call('ZREM', lane_key(base, source), id) == 0 then return -2 end
redis.call('ZADD', lane_key(base, target), 0, id)
redis.call('HSET', row, 'group', target)
ring_rule(base, target)
leave_ring_if_empty(base, source)
return 1
