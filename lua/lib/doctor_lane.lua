--#include lib/doctor.lua
-- One lane: its flights, its ceiling, its place on the ring.

-- What every lane is judged by: true flights, and how often each name stands on the ring.
local function lane_world(base)
  local on_ring, first = {}, 0
  while true do
    local names = redis.call('LRANGE', base .. 'ring', first, first + DOCTOR_PAGE - 1)
    for _, name in ipairs(names) do on_ring[name] = (on_ring[name] or 0) + 1 end
    if #names < DOCTOR_PAGE then break end
    first = first + DOCTOR_PAGE
  end
  return { flights = true_flights(base), on_ring = on_ring }
end

-- Answers {group, kind, flights (true), said (gactive as stored), limit, weight, paused, ring (how often)}.
local function lane_facts(base, world, group)
  return {
    group = group,
    kind = kind_of(lane_key(base, group)),
    flights = world.flights[group] or 0,
    said = redis.call('HGET', base .. 'gactive', group),
    limit = redis.call('HGET', base .. 'glimit', group),
    weight = redis.call('HGET', base .. 'gweight', group),
    paused = redis.call('SISMEMBER', base .. 'paused', group) == 1,
    ring = world.on_ring[group] or 0,
  }
end

-- Why a lane has no place on the ring; nil where it has one.
local function why_not_served(facts)
  if facts.kind == 'none' then return 'it is empty' end
  if facts.paused then return 'it is paused' end
  local limit = facts.limit and as_whole(facts.limit)
  if limit and facts.flights >= limit then return 'it is at its limit of ' .. facts.limit end
  return nil
end

local function judge_odd_lane(facts)
  local where = {}
  if facts.ring > 0 then where[#where + 1] = 'ring' end
  if facts.paused then where[#where + 1] = 'paused' end
  if facts.limit then where[#where + 1] = 'glimit' end
  if facts.said then where[#where + 1] = 'gactive' end
  if facts.weight then where[#where + 1] = 'gweight' end
  if facts.kind ~= 'none' then return { { 'odd_lane', 'there is a lane of that name' } } end
  if #where == 0 then return {} end
  return { { 'odd_lane_name', 'in ' .. table.concat(where, ', ') } }
end

-- A list of {kind, detail}; empty where the lane is well or gone.
local function judge_lane(facts)
  if not is_id(facts.group, 'GRP') then return judge_odd_lane(facts) end
  if facts.kind ~= 'none' and facts.kind ~= 'zset' then
    return { { 'wrong_type', 'the lane is a ' .. facts.kind .. ', not a zset' } }
  end
  local found, sure = {}, true
  local said = facts.said and as_whole(facts.said)
  if facts.said and (not said or said <= 0 or said ~= facts.flights) or not facts.said and facts.flights > 0 then
    sure = false
    found[1] = { 'wrong_gactive', 'gactive says ' .. shown(facts.said or 'none') .. ', ' .. facts.flights .. ' in flight' }
  end
  if facts.limit and (not as_whole(facts.limit) or as_whole(facts.limit) <= 0) then
    sure = false
    found[#found + 1] = { 'bad_limit', 'glimit is "' .. shown(facts.limit) .. '"' }
  end
  if facts.weight and not (tonumber(facts.weight) and tonumber(facts.weight) > 0) then
    found[#found + 1] = { 'bad_weight', 'gweight is "' .. shown(facts.weight) .. '"' }
  end
  local why_not = why_not_served(facts)
  -- With a wrong gactive or limit the place on the ring follows from that, and is mended with it.
  if sure and why_not and facts.ring > 0 then
    found[#found + 1] = { 'on_ring', 'on the ring, though ' .. why_not }
  elseif sure and not why_not and facts.ring == 0 then
    found[#found + 1] = { 'off_ring', 'has work and may be served, but is not on the ring' }
  elseif facts.ring > 1 then
    found[#found + 1] = { 'ring_twice', 'on the ring ' .. facts.ring .. ' times' }
  end
  return found
end
