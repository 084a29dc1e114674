-- Delete waiting jobs of one set (pending, schedule, or a lane), with rows, logs and books: of `limit` jobs from a place on
-- all but those that a worker's lock stands on. Parents of flow children hear that these died.
-- KEYS: the set        ARGV: base, limit, group ("" unless the set is that lane), the place
-- Replies: {how many went, how many are held and stay}. Called again, past those, until both are fewer than the limit.
--#include lib/row.lua
--#include lib/flow.lua
local base, group = ARGV[1], ARGV[3]
expect(KEYS[1], 'zset')
expect_rights(KEYS[1], 'UNLINK', 'ZREM')
if group ~= '' then expect_lane(base, group) end
local first = tonumber(ARGV[4])
local ids, go = redis.call('ZRANGE', KEYS[1], first, first + tonumber(ARGV[2]) - 1), {}
for _, id in ipairs(ids) do
  expect_id(id, 'JOB', KEYS[1])
  local row = base .. 'job:' .. id
  if not is_held(row) then go[#go + 1] = { id = id, row = row, parent = checked_parent(base, row) } end
end
for _, job in ipairs(go) do
  redis.call('ZREM', KEYS[1], job.id)
  delete_row(job.row)
  child_died(base, job.parent, job.id, 'drained')
end
if group ~= '' then leave_ring_if_empty(base, group) end
return { #go, #ids - #go }
