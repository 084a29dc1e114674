-- Reap lapsed leases: back to pending or their lane, without a count.
-- KEYS: active, pending        ARGV: base, limit, group ("" for all; else only that lane's jobs)
-- Replies: how many; EMQDATA.
--#include lib/batch.lua
local base, limit, only = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local batch = new_batch(base)
local now = now_ms()
local function with_group(id)
  local row = base .. 'job:' .. id
  return { id = id, group = expect_group(row, row_fields(row, 'group')[1]) }
end

local jobs = {}
if only == '' then
  jobs = due_members(base, KEYS[1], now, limit, with_group)
else
  -- One lane's jobs may stand anywhere among the lapsed.
  for _, job in ipairs(due_members(base, KEYS[1], now, ASIDE_PAGE * ASIDE_PAGES, with_group)) do
    if job.group == only and #jobs < limit then jobs[#jobs + 1] = job end
  end
end
local taken = {}
for i, job in ipairs(jobs) do taken[i] = job.id end
load_lanes(batch, jobs)
for i, id in ipairs(taken) do
  local group = jobs[i].group
  if group then batch_leave_flight(batch, group) end
  batch_pending(batch, id, group)
end
remove_members(KEYS[1], taken)
for _, id in ipairs(taken) do redis.call('HSET', base .. 'job:' .. id, 'state', 'pending') end
write_batch(batch)
return #taken
