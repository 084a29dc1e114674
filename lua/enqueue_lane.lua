-- Enqueue a grouped job into its lane.
-- KEYS: row, lane        ARGV: base, id, payload, group
-- Replies: 1 admitted; 0 the row exists, nothing changed; EMQKIND not a JOB or GRP id.
--#include lib/lanes.lua
local base, id, group = ARGV[1], ARGV[2], ARGV[4]
expect_job(id)
if not is_id(group, 'GRP') then return redis.error_reply('EMQKIND not a GRP id') end
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
expect_lane(base, group)
expect_rights(KEYS[2], 'HSET', 'ZADD')
redis.call('HSET', KEYS[1], 'state', 'pending', 'attempts', '0', 'payload', ARGV[3], 'group', group)
redis.call('ZADD', KEYS[2], 0, id)
ring_rule(base, group)
return 1
