--#include lib/check.lua
-- Lanes: the lane rule (a grouped job leaves active) and the ring rule (a lane may have become servable), for one job.

local WAKE_MAX = 64

local function lane_key(base, group)
  return base .. 'g:' .. group .. ':pending'
end

local function expect_lane_rights(base)
  expect_rights(base .. 'ring', 'HDEL', 'HINCRBY', 'LPUSH', 'LREM', 'LTRIM', 'RPUSH')
end

-- Checks every key that the two rules may write, and the right to, before the first write. `any_limit`: a ceiling that
-- is no number is none, since it is about to be replaced, or is not what this is about.
-- Answers whether the lane is below its ceiling.
local shared_checked = {} -- bases whose keys of all lanes were checked, in this run of the script
local function expect_lane(base, group, any_limit)
  expect_id(group, 'GRP', base .. 'job:* group')
  expect_lane_rights(base)
  expect(lane_key(base, group), 'zset')
  if not shared_checked[base] then
    expect(base .. 'ring', 'list')
    expect(base .. 'wake', 'list')
    expect(base .. 'paused', 'set')
    expect(base .. 'gactive', 'hash')
    expect(base .. 'glimit', 'hash')
    shared_checked[base] = true
  end
  local in_flight = redis.call('HGET', base .. 'gactive', group)
  in_flight = in_flight and whole(in_flight, base .. 'gactive ' .. group) or 0
  local limit = not any_limit and redis.call('HGET', base .. 'glimit', group)
  return not limit or in_flight < whole(limit, base .. 'glimit ' .. group)
end

-- Lane rule: one job fewer in flight; no field at zero or below.
local function leave_flight(base, group)
  if redis.call('HINCRBY', base .. 'gactive', group, -1) <= 0 then
    redis.call('HDEL', base .. 'gactive', group)
  end
end

local function below_limit(base, group)
  local limit = tonumber(redis.call('HGET', base .. 'glimit', group) or '')
  if not limit then return true end
  return (tonumber(redis.call('HGET', base .. 'gactive', group) or '') or 0) < limit
end

local function wake_one(base)
  redis.call('LPUSH', base .. 'wake', '1')
  redis.call('LTRIM', base .. 'wake', 0, WAKE_MAX - 1)
end

-- Ring rule: a lane that has work, is not paused, is below its limit and not on the ring yet goes on it.
local function ring_rule(base, group)
  if redis.call('EXISTS', lane_key(base, group)) == 1
    and redis.call('SISMEMBER', base .. 'paused', group) == 0
    and below_limit(base, group)
    and not redis.call('LPOS', base .. 'ring', group, 'RANK', -1) then -- a lane in use was turned to the end lately
    redis.call('RPUSH', base .. 'ring', group)
    wake_one(base)
  end
end

-- An empty lane has no place on the ring.
local function leave_ring_if_empty(base, group)
  if redis.call('EXISTS', lane_key(base, group)) == 0 then
    redis.call('LREM', base .. 'ring', 0, group)
  end
end
