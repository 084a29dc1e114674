--#include lib/lanes.lua
--#include lib/aside.lua
-- Many jobs of one queue go to pending, to their lanes or to the dead set in one script. The lane and ring rules are
-- followed in memory, job by job in the given order, and written with one command a key: the same end, fewer calls.

local CHUNK = 500 -- values per unpack; Lua's stack ends near 8,000
local RING_READ, RING_LONGEST = 1000, 100000 -- a ring up to this length is read whole, once; for many lanes also a long one

local function each_chunk(values, send)
  for first = 1, #values, CHUNK do
    send(unpack(values, first, math.min(first + CHUNK - 1, #values)))
  end
end

local function new_batch(base)
  for _, name in ipairs({ 'active', 'pending', 'schedule', 'dead' }) do expect(base .. name, 'zset') end
  expect_rights(base .. 'active', 'HSET', 'ZADD', 'ZREM')
  return { base = base, lanes = {}, order = {}, pending = {}, dead = {}, pushes = {} }
end

-- Reads the facts of the lanes of `jobs` (each with .group or without) as they stand, and checks every key that the
-- rules may write; before the first write.
local function load_lanes(batch, jobs)
  local base, order = batch.base, batch.order
  for _, job in ipairs(jobs) do
    local group = job.group
    if group and not batch.lanes[group] then
      expect_id(group, 'GRP', base .. 'job:* group')
      batch.lanes[group] = { work = expect(lane_key(base, group), 'zset'), left = 0, members = {} }
      order[#order + 1] = group
    end
  end
  if #order == 0 then return end
  expect_rights(base .. 'ring', 'HDEL', 'LPUSH', 'LTRIM', 'RPUSH')
  expect(base .. 'ring', 'list')
  expect(base .. 'wake', 'list')
  expect(base .. 'paused', 'set')
  expect(base .. 'gactive', 'hash')
  expect(base .. 'glimit', 'hash')
  local place = 0
  each_chunk(order, function(...)
    local limits = redis.call('HMGET', base .. 'glimit', ...)
    local flights = redis.call('HMGET', base .. 'gactive', ...)
    local paused = redis.call('SMISMEMBER', base .. 'paused', ...)
    for i = 1, #paused do
      place = place + 1
      local group = order[place]
      local lane = batch.lanes[group]
      lane.limit = limits[i] and whole(limits[i], base .. 'glimit ' .. group)
      lane.in_flight = flights[i] and whole(flights[i], base .. 'gactive ' .. group) or 0
      lane.paused = paused[i] == 1
    end
  end)
  local length = redis.call('LLEN', base .. 'ring')
  if length <= RING_READ or #order >= 15 and length <= RING_LONGEST then
    for _, group in ipairs(redis.call('LRANGE', base .. 'ring', 0, -1)) do
      if batch.lanes[group] then batch.lanes[group].on_ring = true end
    end
  else
    for _, group in ipairs(order) do
      batch.lanes[group].on_ring = redis.call('LPOS', base .. 'ring', group) and true or false
    end
  end
end

-- Lane rule in memory.
local function batch_leave_flight(batch, group)
  local lane = batch.lanes[group]
  lane.in_flight = math.max(lane.in_flight - 1, 0)
  lane.left = lane.left + 1
end

-- `id` is to wait again: in its lane (ring rule in memory) or in flat pending.
local function batch_pending(batch, id, group)
  if not group then
    local list = batch.pending
    list[#list + 1] = 0
    list[#list + 1] = id
    return
  end
  local lane = batch.lanes[group]
  local list = lane.members
  list[#list + 1] = 0
  list[#list + 1] = id
  lane.work = true
  if not lane.on_ring and not lane.paused and (not lane.limit or lane.in_flight < lane.limit) then
    lane.on_ring = true
    batch.pushes[#batch.pushes + 1] = group
  end
end

-- `id` is dead. As recorded, the place that it leaves in a lane at its limit does not put that lane on the ring: the next
-- enqueue, completion or resume in the lane does, or `doctor`.
local function batch_dead(batch, id)
  local list = batch.dead
  list[#list + 1] = 0
  list[#list + 1] = id
end

-- Writes the sets, lanes, flights, ring and wake, and names what was set aside. Rows are the caller's.
local function write_batch(batch)
  local base = batch.base
  each_chunk(batch.pending, function(...) redis.call('ZADD', base .. 'pending', ...) end)
  each_chunk(batch.dead, function(...) redis.call('ZADD', base .. 'dead', ...) end)
  local counted, emptied = {}, {}
  for _, group in ipairs(batch.order) do
    local lane = batch.lanes[group]
    each_chunk(lane.members, function(...) redis.call('ZADD', lane_key(base, group), ...) end)
    if lane.left > 0 and lane.in_flight > 0 then
      counted[#counted + 1] = group
      counted[#counted + 1] = digits(lane.in_flight)
    elseif lane.left > 0 then
      emptied[#emptied + 1] = group
    end
  end
  each_chunk(counted, function(...) redis.call('HSET', base .. 'gactive', ...) end)
  each_chunk(emptied, function(...) redis.call('HDEL', base .. 'gactive', ...) end)
  each_chunk(batch.pushes, function(...) redis.call('RPUSH', base .. 'ring', ...) end)
  for _ = 1, math.min(#batch.pushes, WAKE_MAX) do redis.call('LPUSH', base .. 'wake', '1') end
  if #batch.pushes > 0 then redis.call('LTRIM', base .. 'wake', 0, WAKE_MAX - 1) end
  write_aside(base)
end

-- Takes `ids` out of a zset.
local function remove_members(key, ids)
  each_chunk(ids, function(...) redis.call('ZREM', key, ...) end)
end
