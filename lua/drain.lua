-- Delete up to `limit` waiting jobs of one set (pending, schedule, or a lane), with rows, logs and books.
-- KEYS: the set        ARGV: base, limit, group ("" unless the set is that lane)
-- Replies: how many. Called again until it is fewer than the limit.
--#include lib/row.lua
local base, group = ARGV[1], ARGV[3]
expect(KEYS[1], 'zset')
expect_rights(KEYS[1], 'UNLINK', 'ZREM')
if group ~= '' then expect_lane(base, group) end
local ids = redis.call('ZRANGE', KEYS[1], 0, tonumber(ARGV[2]) - 1)
for _, id in ipairs(ids) do expect_id(id, 'JOB', KEYS[1]) end
for _, id in ipairs(ids) do
  redis.call('ZREM', KEYS[1], id)
  delete_row(base .. 'job:' .. id)
end
if group ~= '' then leave_ring_if_empty(base, group) end
return #ids
