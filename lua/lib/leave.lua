--#include lib/lanes.lua
-- A job leaves wherever it is. One call of expect_leave before the first write, one of leave_everywhere after.

local function expect_leave(base, group)
  expect(base .. 'active', 'zset')
  expect(base .. 'pending', 'zset')
  expect(base .. 'schedule', 'zset')
  expect(base .. 'dead', 'zset')
  expect_rights(base .. 'active', 'ZREM')
  if group then expect_lane(base, group) end
end

-- Takes `id` out of active (lane rule, ring rule), or out of pending, its lane or the schedule: a job whose lease was
-- reaped waits there, and is settled all the same. As recorded, an entry in the dead set stays.
local function leave_claim(base, id, group)
  if redis.call('ZREM', base .. 'active', id) == 1 then
    if group then
      leave_flight(base, group)
      ring_rule(base, group)
    end
    return
  end
  redis.call('ZREM', base .. 'pending', id)
  redis.call('ZREM', base .. 'schedule', id)
  if group and redis.call('ZREM', lane_key(base, group), id) == 1 then
    leave_ring_if_empty(base, group)
  end
end

-- As leave_claim, and out of the dead set.
local function leave_everywhere(base, id, group)
  leave_claim(base, id, group)
  redis.call('ZREM', base .. 'dead', id)
end
