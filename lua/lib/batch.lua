--#include lib/lanes.lua
-- Many jobs of one queue go to pending, to their lanes or to the dead set in one script. The lane and ring rules are
-- followed in memory, job by job in the given order, and written with one command a key: the same end, fewer calls.

local CHUNK = 500 -- values per unpack; Lua's stack ends near 8,000

local function each_chunk(values, send)
  for first = 1, #values, CHUNK do
    send(unpack(values, first, math.min(first + CHUNK - 1, #values)))
  end
end

local function new_batch(base)
  for _, name in ipairs({ 'active', 'pending', 'schedule', 'dead' }) do expect(base .. name, 'zset') end
  return { base = base, lanes = {}, order = {}, pending = {}, dead = {}, pushes = {}, checked = false }
end

-- The lane's facts as they stand, read once; every check of its keys is made here, before the first write.
local function batch_lane(batch, group)
  local lane = batch.lanes[group]
  if lane then return lane end
  local base = batch.base
  if not batch.checked then
    expect(base .. 'ring', 'list')
    expect(base .. 'wake', 'list')
    expect(base .. 'paused', 'set')
    expect(base .. 'gactive', 'hash')
    expect(base .. 'glimit', 'hash')
    batch.checked = true
  end
  expect_id(group, 'GRP', base .. 'job:* group')
  local limit = redis.call('HGET', base .. 'glimit', group)
  local in_flight = redis.call('HGET', base .. 'gactive', group)
  lane = {
    work = expect(lane_key(base, group), 'zset'),
    limit = limit and whole(limit, base .. 'glimit ' .. group),
    in_flight = in_flight and whole(in_flight, base .. 'gactive ' .. group) or 0,
    left = 0,
    paused = redis.call('SISMEMBER', base .. 'paused', group) == 1,
    on_ring = redis.call('LPOS', base .. 'ring', group) and true or false,
    members = {},
  }
  batch.lanes[group] = lane
  batch.order[#batch.order + 1] = group
  return lane
end

-- Lane rule in memory.
local function batch_leave_flight(lane)
  lane.in_flight = math.max(lane.in_flight - 1, 0)
  lane.left = lane.left + 1
end

-- Ring rule in memory.
local function batch_ring(batch, lane, group)
  if lane.work and not lane.on_ring and not lane.paused and (not lane.limit or lane.in_flight < lane.limit) then
    lane.on_ring = true
    batch.pushes[#batch.pushes + 1] = group
  end
end

-- `id` is to wait again: in its lane (ring rule in memory) or in flat pending.
local function batch_pending(batch, id, group)
  if not group then
    local list = batch.pending
    list[#list + 1] = 0
    list[#list + 1] = id
    return
  end
  local lane = batch_lane(batch, group)
  local list = lane.members
  list[#list + 1] = 0
  list[#list + 1] = id
  lane.work = true
  batch_ring(batch, lane, group)
end

-- `id` is dead. As recorded, the place that it leaves in a lane at its limit does not put that lane on the ring: the next
-- enqueue, completion or resume in the lane does, or `doctor`.
local function batch_dead(batch, id)
  local list = batch.dead
  list[#list + 1] = 0
  list[#list + 1] = id
end

-- Writes the sets, lanes, flights, ring and wake. Rows are the caller's.
local function write_batch(batch)
  local base = batch.base
  each_chunk(batch.pending, function(...) redis.call('ZADD', base .. 'pending', ...) end)
  each_chunk(batch.dead, function(...) redis.call('ZADD', base .. 'dead', ...) end)
  for _, group in ipairs(batch.order) do
    local lane = batch.lanes[group]
    each_chunk(lane.members, function(...) redis.call('ZADD', lane_key(base, group), ...) end)
    if lane.left > 0 then
      if lane.in_flight > 0 then
        redis.call('HSET', base .. 'gactive', group, digits(lane.in_flight))
      else
        redis.call('HDEL', base .. 'gactive', group)
      end
    end
  end
  each_chunk(batch.pushes, function(...) redis.call('RPUSH', base .. 'ring', ...) end)
  for _ = 1, math.min(#batch.pushes, WAKE_MAX) do redis.call('LPUSH', base .. 'wake', '1') end
  if #batch.pushes > 0 then redis.call('LTRIM', base .. 'wake', 0, WAKE_MAX - 1) end
end

-- Up to `limit` members of a zset whose score is due, lowest first, each checked: id and score.
local function due_members(key, now, limit)
  local found = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
  local ids = {}
  for i = 1, #found, 2 do
    expect_id(found[i], 'JOB', key)
    expect_instant(found[i + 1], key .. ' ' .. found[i])
    ids[#ids + 1] = found[i]
  end
  return ids
end

-- Takes `ids` out of a zset.
local function remove_members(key, ids)
  each_chunk(ids, function(...) redis.call('ZREM', key, ...) end)
end
