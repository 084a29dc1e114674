#!lua flags=allow-oom
-- Mend one thing that the doctor found wrong with a job, if it is still so.
-- KEYS: active (names the slot)        ARGV: base, the set it was seen in, id, kind of damage
-- Replies: 1 mended; 0 no longer so, nothing changed; -1 can't be mended without losing something; EMQDATA.
--#include lib/doctor_job.lua
--#include lib/row.lua
local base, set, id, kind = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local facts = job_facts(base, id, set)
if not still_found(judge_job(facts), kind) then return 0 end
local now = now_ms()
for _, name in ipairs(JOB_SETS) do expect(base .. name, 'zset') end
expect_rights(KEYS[1], 'HSET', 'UNLINK', 'ZADD', 'ZREM')
expect_lane_rights(base)
if facts.grouped then expect_lane(base, facts.group) end
local seen_lane = string.match(set, '^g:(.+):pending$')
if seen_lane and is_id(seen_lane, 'GRP') then expect_lane(base, seen_lane) end

local function leave(name)
  redis.call('ZREM', base .. name, id)
  local lane = string.match(name, '^g:(.+):pending$')
  if lane then leave_ring_if_empty(base, lane) end
end

local function leave_all()
  for _, place in ipairs(facts.places) do leave(place[1]) end
end

-- gactive as it must be after this job left active: counted, since what it said may have been wrong too.
local function settle_flights()
  if not facts.grouped then return end
  local flights = true_flights(base)[facts.group] or 0
  if flights > 0 then
    redis.call('HSET', base .. 'gactive', facts.group, digits(flights))
  else
    redis.call('HDEL', base .. 'gactive', facts.group)
  end
  ring_rule(base, facts.group)
end

local function join(name, score)
  redis.call('ZADD', base .. name, score, id)
  redis.call('HSET', facts.row, 'state', STATE_IN[name] or 'pending')
  if name == facts.own and facts.grouped then ring_rule(base, facts.group) end
end

-- Seconds or microseconds that were taken for milliseconds are turned back; anything else is due now.
local function instant_from(score)
  local number = tonumber(score)
  if number and is_instant(number * 1000) then return digits(math.floor(number * 1000)) end
  if number and is_instant(number / 1000) then return digits(math.floor(number / 1000)) end
  return digits(now)
end

local mends = {}

function mends.odd_member()
  if facts.kind ~= 'none' then return -1 end -- a row hangs on it
  leave_all()
end

function mends.ghost() leave_all() end
mends.member_without_row = mends.ghost

function mends.hollow_row()
  leave_all()
  delete_row(facts.row)
  settle_flights()
end

function mends.no_attempts()
  -- While somebody may hold it, 0 would let an old token fit again.
  for _, place in ipairs(facts.places) do if place[1] == 'active' then return -1 end end
  redis.call('HSET', facts.row, 'attempts', '0')
end
mends.bad_attempts = mends.no_attempts

function mends.bad_stalled() redis.call('HDEL', facts.row, 'stalled') end

function mends.odd_score()
  local name, score = facts.places[1][1], facts.places[1][2]
  local right = (name == 'active' or name == 'schedule') and instant_from(score) or 0
  redis.call('ZADD', base .. name, 'XX', right, id)
end

function mends.wrong_lane()
  leave(facts.places[1][1])
  join(facts.own, 0)
end

function mends.state_mismatch()
  redis.call('HSET', facts.row, 'state', STATE_IN[facts.places[1][1]] or 'pending')
end

function mends.lost_row()
  if facts.state == 'dead' then
    join('dead', 0)
  elseif facts.state == 'scheduled' then
    join('schedule', digits(now))
  else
    join(facts.own, 0)
  end
end

-- The place that the state names stays; else the one that loses least: a lease, then a waiting place.
function mends.two_places()
  local rank = { active = 1, schedule = 3, dead = 4 }
  local kept, best
  for _, place in ipairs(facts.places) do
    local worth = rank[place[1]] or (place[1] == facts.own and 2 or 5)
    if (STATE_IN[place[1]] or 'pending') == facts.state and worth < 5 then worth = worth - 10 end
    if not best or worth < best then kept, best = place, worth end
  end
  local left_active = false
  for _, place in ipairs(facts.places) do
    if place ~= kept then
      leave(place[1])
      left_active = left_active or place[1] == 'active'
    end
  end
  redis.call('HSET', facts.row, 'state', STATE_IN[kept[1]] or 'pending')
  if left_active then settle_flights() end
end

local mend = mends[kind]
if not mend then return -1 end
return mend() or 1
