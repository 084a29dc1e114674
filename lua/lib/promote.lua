--#include lib/batch.lua
-- Due scheduled jobs go to pending or their lane. Answers their ids; all checks come before the first write.

local function promote_due(base, schedule, now, limit)
  local batch = new_batch(base)
  local jobs = due_members(base, schedule, now, limit, function(id)
    local row = base .. 'job:' .. id
    return { id = id, group = expect_group(row, row_fields(row, 'group')[1]) }
  end)
  local ids = {}
  for i, job in ipairs(jobs) do ids[i] = job.id end
  load_lanes(batch, jobs)
  for i, id in ipairs(ids) do batch_pending(batch, id, jobs[i].group) end
  remove_members(schedule, ids)
  for _, id in ipairs(ids) do redis.call('HSET', base .. 'job:' .. id, 'state', 'pending') end
  write_batch(batch)
  return ids
end
