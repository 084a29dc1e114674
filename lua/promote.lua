-- Promote scheduled jobs that are due to pending or their lane.
-- KEYS: schedule, pending        ARGV: base, limit
-- Replies: how many; EMQDATA.
--#include lib/batch.lua
local base = ARGV[1]
local batch = new_batch(base)
local ids = due_members(KEYS[1], now_ms(), tonumber(ARGV[2]))
local jobs = {}
for i, id in ipairs(ids) do jobs[i] = { group = row_fields(base .. 'job:' .. id, 'group')[1] } end
load_lanes(batch, jobs)
for i, id in ipairs(ids) do batch_pending(batch, id, jobs[i].group) end
remove_members(KEYS[1], ids)
for _, id in ipairs(ids) do redis.call('HSET', base .. 'job:' .. id, 'state', 'pending') end
write_batch(batch)
return #ids
