-- The doctor's look at lanes. Changes nothing. One script counts what is in flight, so it is bounded by that.
-- KEYS: active        ARGV: base, the most in flight that may be counted, groups
-- Replies: for each thing found: {group, kind, detail}; -1 where more is in flight than may be counted at once.
--#include lib/doctor_lane.lua
local base = ARGV[1]
if redis.call('ZCARD', KEYS[1]) > tonumber(ARGV[2]) then return -1 end
local world = lane_world(base)
local found = {}
for i = 3, #ARGV do
  for _, finding in ipairs(judge_lane(lane_facts(base, world, ARGV[i]))) do
    found[#found + 1] = { ARGV[i], finding[1], finding[2] }
  end
end
return found
