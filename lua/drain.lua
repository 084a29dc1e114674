-- Delete waiting jobs of one set (pending, schedule, or a lane), with rows, logs and books: of `limit` jobs from a place on
-- all but those that a worker's lock stands on.
-- KEYS: the set        ARGV: base, limit, group ("" unless the set is that lane), the place
-- Replies: {how many went, how many are held and stay}. Called again, past those, until both are fewer than the limit.
--#include lib/row.lua
local base, group = ARGV[1], ARGV[3]
expect(KEYS[1], 'zset')
expect_rights(KEYS[1], 'UNLINK', 'ZREM')
if group ~= '' then expect_lane(base, group) end
local first = tonumber(ARGV[4])
local ids, go = redis.call('ZRANGE', KEYS[1], first, first + tonumber(ARGV[2]) - 1), {}
for _, id in ipairs(ids) do
  expect_id(id, 'JOB', KEYS[1])
  if not is_held(base .. 'job:' .. id) then go[#go + 1] = id end
end
for _, id in ipairs(go) do
  redis.call('ZREM', KEYS[1], id)
  delete_row(base .. 'job:' .. id)
end
if group ~= '' then leave_ring_if_empty(base, group) end
return { #go, #ids - #go }
