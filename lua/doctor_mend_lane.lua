#!lua flags=allow-oom
-- Mend one thing that the doctor found wrong with a lane, if it is still so.
-- KEYS: active        ARGV: base, group, kind of damage
-- Replies: 1 mended; 0 no longer so, nothing changed; -1 can't be mended by itself; EMQDATA.
--#include lib/doctor_lane.lua
local base, group, kind = ARGV[1], ARGV[2], ARGV[3]
local facts = lane_facts(base, lane_world(base), group)
if not still_found(judge_lane(facts), kind) then return 0 end
expect(base .. 'ring', 'list')
expect_rights(base .. 'ring', 'HDEL', 'HSET', 'LPUSH', 'LREM', 'LTRIM', 'RPUSH', 'SREM')
expect(base .. 'wake', 'list')
expect(base .. 'paused', 'set')
for _, name in ipairs({ 'gactive', 'glimit', 'gweight' }) do expect(base .. name, 'hash') end

local function settle_ring()
  local why_not = why_not_served(facts)
  if why_not then
    redis.call('LREM', base .. 'ring', 0, group)
  elseif facts.ring == 0 then
    redis.call('RPUSH', base .. 'ring', group)
    wake_one(base)
  end
end

local mends = { off_ring = settle_ring, on_ring = settle_ring }

function mends.ring_twice()
  redis.call('LREM', base .. 'ring', 1 - facts.ring, group) -- from the right: its first place stays
end

function mends.wrong_gactive()
  if facts.flights > 0 then
    redis.call('HSET', base .. 'gactive', group, digits(facts.flights))
  else
    redis.call('HDEL', base .. 'gactive', group)
  end
  settle_ring()
end

function mends.bad_limit()
  redis.call('HDEL', base .. 'glimit', group)
  facts.limit = false
  settle_ring()
end

function mends.bad_weight() redis.call('HDEL', base .. 'gweight', group) end

function mends.odd_lane_name()
  redis.call('LREM', base .. 'ring', 0, group)
  redis.call('SREM', base .. 'paused', group)
  for _, name in ipairs({ 'gactive', 'glimit', 'gweight' }) do redis.call('HDEL', base .. name, group) end
end

local mend = mends[kind]
if not mend then return -1 end
mend()
return 1
