--#include lib/check.lua
-- A flow child settles: its parent hears of it in the same step where both are of one queue, else by the outbox of the
-- child's. One call of expect_flow before the first write, one of child_completed or child_died after.

local NUL = '\0'

local function own_queue(base)
  return string.sub(base, 6, -3)
end

-- The parent of a row ({job, queue, policy}), or nil for a job that is no child. `values`: parent, parent_queue,
-- parent_policy.
local function parent_of(base, parent, queue, policy)
  if not parent then return nil end
  if queue == own_queue(base) then queue = nil end
  return { job = parent, queue = queue or nil, policy = policy == 'id' and 'id' or 'fp' }
end

-- Checks what hearing of a child may write at its parent's.
local function expect_parent(base, parent)
  expect_id(parent, 'JOB', base .. 'job:* parent')
  local row = base .. 'job:' .. parent
  expect(row, 'hash')
  for _, book in ipairs({ ':processed', ':failed', ':unsuccessful' }) do expect(row .. book, 'hash') end
  local open = redis.call('GET', row .. ':dependencies')
  if open then whole(open, row .. ':dependencies') end
  expect(base .. 'pending', 'zset')
  expect(base .. 'dead', 'zset')
  expect(base .. 'flow:outbox', 'list')
  expect_rights(row, 'DECR', 'HSET', 'RPUSH', 'ZADD', 'ZREM')
end

local function expect_flow(base, parent)
  if not parent then return end
  if parent.queue then
    expect(base .. 'flow:outbox', 'list')
    expect_rights(base .. 'flow:outbox', 'RPUSH')
  else
    expect_parent(base, parent.job)
  end
end

-- The parent of the job whose row that is, checked for what its death may write; nil for a job that is no child.
local function checked_parent(base, row)
  local values = row_fields(row, 'parent', 'parent_queue', 'parent_policy')
  local parent = parent_of(base, values[1], values[2], values[3])
  expect_flow(base, parent)
  return parent
end

-- One open child fewer; at none left a parent that waits for its children goes to pending.
local function one_fewer(base, row, parent)
  if redis.call('DECR', row .. ':dependencies') > 0 then return end
  if redis.call('HGET', row, 'state') == 'awaiting_children' then
    redis.call('HSET', row, 'state', 'pending')
    redis.call('ZADD', base .. 'pending', 0, parent)
  end
end

-- Whether a child was heard of: it is counted once, however often it settles.
local function heard_of(row, child)
  return redis.call('HEXISTS', row .. ':processed', child) == 1 or redis.call('HEXISTS', row .. ':unsuccessful', child) == 1
end

-- The parent, of this queue, hears that a child completed. One that is gone hears nothing.
local function hear_completed(base, parent, child, result)
  local row = base .. 'job:' .. parent
  if redis.call('EXISTS', row) == 0 then return end
  local known = heard_of(row, child)
  redis.call('HSET', row .. ':processed', child, result)
  if not known then one_fewer(base, row, parent) end
end

-- The parent hears that a child died. `forward`: also where it was dead already, its own parent is told.
local function hear_died(base, parent, child, policy, text, forward)
  local row = base .. 'job:' .. parent
  if redis.call('EXISTS', row) == 0 then return end
  if policy == 'id' then
    local known = heard_of(row, child)
    redis.call('HSET', row .. ':unsuccessful', child, text)
    if not known then one_fewer(base, row, parent) end
    return
  end
  redis.call('HSET', row .. ':failed', child, text)
  local values = redis.call('HMGET', row, 'state', 'parent', 'parent_queue', 'parent_policy')
  local died = values[1] == 'awaiting_children' or redis.call('ZREM', base .. 'pending', parent) == 1
  if died then
    redis.call('HSET', row, 'state', 'dead')
    redis.call('ZADD', base .. 'dead', 0, parent)
  end
  if values[2] and (died or (forward and values[1] == 'dead')) then
    local own = values[4] == 'id' and 'id' or 'fp'
    local told = { '', 'fail', values[3] or own_queue(base), values[2], parent, own, text }
    redis.call('RPUSH', base .. 'flow:outbox', table.concat(told, NUL))
  end
end

local function child_completed(base, parent, child, result)
  if not parent then return end
  if not parent.queue then return hear_completed(base, parent.job, child, result) end
  redis.call('RPUSH', base .. 'flow:outbox', table.concat({ parent.queue, parent.job, child, result }, NUL))
end

local function child_died(base, parent, child, text)
  if not parent then return end
  if not parent.queue then return hear_died(base, parent.job, child, parent.policy, text, true) end
  local told = { '', 'fail', parent.queue, parent.job, child, parent.policy, text }
  redis.call('RPUSH', base .. 'flow:outbox', table.concat(told, NUL))
end
