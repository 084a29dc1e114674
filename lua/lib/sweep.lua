--#include lib/batch.lua
-- The stalled sweep of up to `limit` lapsed leases: all reads and checks, then all writes.

-- A lapsed lease as it was found: {id, row, group, stalled (count so far)}. Refuses a count that is no number.
local function lapsed_lease(base, id)
  local row = base .. 'job:' .. id
  local values = row_fields(row, 'stalled', 'group')
  return { id = id, row = row, group = values[2], stalled = values[1] and whole(values[1], row .. ' stalled') or 0 }
end

-- Counts the stall of each lease and settles it, in order. Answers {recovered = ids, dead = ids}.
local function settle_stalled(base, leases, max_stalled)
  local batch = new_batch(base)
  load_lanes(batch, leases)
  local swept = { recovered = {}, dead = {} }
  for _, lease in ipairs(leases) do
    if lease.group then batch_leave_flight(batch, lease.group) end
    if lease.stalled + 1 >= max_stalled then
      swept.dead[#swept.dead + 1] = lease.id
      batch_dead(batch, lease.id)
    else
      swept.recovered[#swept.recovered + 1] = lease.id
      batch_pending(batch, lease.id, lease.group)
    end
  end
  local failed = base .. 'metrics:failed'
  expect(failed, 'hash')
  whole(redis.call('HGET', failed, 'count') or '0', failed .. ' count')
  -- The first write is below this line.
  local ids = {}
  for i, lease in ipairs(leases) do ids[i] = lease.id end
  remove_members(base .. 'active', ids)
  for _, lease in ipairs(leases) do
    local count = digits(lease.stalled + 1)
    if lease.stalled + 1 >= max_stalled then
      redis.call('HSET', lease.row, 'stalled', count, 'state', 'dead', 'last_error', 'stalled')
    else
      redis.call('HSET', lease.row, 'stalled', count, 'state', 'pending')
    end
  end
  if #swept.dead > 0 then redis.call('HINCRBY', failed, 'count', #swept.dead) end
  write_batch(batch)
  return swept
end

local function sweep_due(base, max_stalled, limit)
  local leases = {}
  for i, id in ipairs(due_members(base .. 'active', now_ms(), limit)) do leases[i] = lapsed_lease(base, id) end
  return settle_stalled(base, leases, max_stalled)
end
