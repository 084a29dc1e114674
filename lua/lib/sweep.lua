--#include lib/batch.lua
--#include lib/counter.lua
--#include lib/flow.lua
--#include lib/dedup.lua
-- The stalled sweep of up to `limit` lapsed leases: all reads and checks, then all writes.

-- A lapsed lease as it was found: {id, row, group, stalled (count so far), parent}. Refuses a count that is no number.
local function lapsed_lease(base, id)
  local row = base .. 'job:' .. id
  local values = row_fields(row, 'stalled', 'group')
  return {
    id = id, row = row, group = expect_group(row, values[2]), parent = checked_parent(base, row),
    stalled = values[1] and whole(values[1], row .. ' stalled') or 0,
  }
end

-- Settles each lease, in order: counts its stall, unless `lease.exempt`. An exempt ghost leaves active and no row is made.
-- Sets on each `count` and `outcome`: recovered, dead, ghost. Answers {recovered = ids, dead = ids}.
-- `refuse_dead(number)`, if given, is asked before the first write; what it returns ends the script instead.
local function settle_stalled(base, leases, max_stalled, refuse_dead)
  local batch = new_batch(base)
  load_lanes(batch, leases)
  local swept = { recovered = {}, dead = {} }
  for _, lease in ipairs(leases) do
    if lease.group then batch_leave_flight(batch, lease.group) end
    lease.count = lease.stalled + (lease.exempt and 0 or 1)
    if not lease.exempt and lease.count >= max_stalled then
      lease.outcome = 'dead'
      swept.dead[#swept.dead + 1] = lease.id
      batch_dead(batch, lease.id)
    elseif lease.exempt and lease.ghost then
      lease.outcome = 'ghost'
    else
      lease.outcome = 'recovered'
      swept.recovered[#swept.recovered + 1] = lease.id
      batch_pending(batch, lease.id, lease.group)
    end
  end
  local failed = base .. 'metrics:failed'
  expect_rights(failed, 'HINCRBY')
  local counts = countable(base, 'metrics:failed')
  local refusal = refuse_dead and refuse_dead(#swept.dead)
  if refusal then return nil, refusal end
  -- The first write is below this line.
  local ids = {}
  for i, lease in ipairs(leases) do ids[i] = lease.id end
  remove_members(base .. 'active', ids)
  for _, lease in ipairs(leases) do
    if lease.outcome == 'dead' then
      release_dedup_of(base, lease.id, 'dead')
      redis.call('HSET', lease.row, 'stalled', digits(lease.count), 'state', 'dead', 'last_error', 'stalled')
    elseif lease.outcome == 'recovered' and lease.exempt then
      redis.call('HSET', lease.row, 'state', 'pending')
    elseif lease.outcome == 'recovered' then
      redis.call('HSET', lease.row, 'stalled', digits(lease.count), 'state', 'pending')
    end
  end
  if #swept.dead > 0 and counts then redis.call('HINCRBY', failed, 'count', #swept.dead) end
  write_batch(batch)
  return swept
end

-- The parents of flow children that died in the sweep hear of it.
local function tell_parents(base, leases)
  for _, lease in ipairs(leases) do
    if lease.outcome == 'dead' then child_died(base, lease.parent, lease.id, 'stalled') end
  end
end

local function sweep_due(base, max_stalled, limit)
  local leases = due_members(base, base .. 'active', now_ms(), limit, function(id) return lapsed_lease(base, id) end)
  local swept = settle_stalled(base, leases, max_stalled)
  tell_parents(base, leases)
  return swept
end
