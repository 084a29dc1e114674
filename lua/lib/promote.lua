--#include lib/batch.lua
-- Due scheduled jobs go to pending or their lane. Answers their ids; all checks come before the first write.

local function promote_due(base, schedule, now, limit)
  local batch = new_batch(base)
  local ids = due_members(schedule, now, limit)
  local jobs = {}
  for i, id in ipairs(ids) do jobs[i] = { group = row_fields(base .. 'job:' .. id, 'group')[1] } end
  load_lanes(batch, jobs)
  for i, id in ipairs(ids) do batch_pending(batch, id, jobs[i].group) end
  remove_members(schedule, ids)
  for _, id in ipairs(ids) do redis.call('HSET', base .. 'job:' .. id, 'state', 'pending') end
  write_batch(batch)
  return ids
end
