-- Bring an archived job back: its row and log lines, dead as it was or waiting to run.
-- KEYS: row, logs        ARGV: base, id, "dead" | "pending", how many texts the row has, row as name, value ..., log lines
-- Replies: 1 it is back; 0 the row exists, nothing changed; EMQKIND, EMQSTATE a set holds this id already, EMQDATA.
-- Waiting again follows requeue: attempts stay (they are the token), the stall count and the last error go.
--#include lib/lanes.lua
local base, id, goal, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if not is_id(id, 'JOB') then return redis.error_reply('EMQKIND not a JOB id') end
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
for _, set in ipairs({ 'pending', 'active', 'schedule', 'dead' }) do
  expect(base .. set, 'zset')
  if redis.call('ZSCORE', base .. set, id) then
    return redis.error_reply('EMQSTATE ' .. set .. ' holds this id without a row')
  end
end
expect(KEYS[2], 'list')

local row, group, has_attempts = {}, nil, false
for i = 5, 4 + count, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  if name == 'group' then group = value end
  if name == 'attempts' then has_attempts = true end
  if name == 'state' then value = goal end
  if goal == 'dead' or (name ~= 'last_error' and name ~= 'stalled' and name ~= 'lease_epoch') then
    row[#row + 1] = name
    row[#row + 1] = value
  end
end
if not has_attempts then refuse('EMQDATA', 'the archived row has no attempts') end
if group then expect_lane(base, group) end

-- The first write is below this line.
for first = 1, #row, 500 do redis.call('HSET', KEYS[1], unpack(row, first, math.min(first + 499, #row))) end
redis.call('HSET', KEYS[1], 'state', goal)
redis.call('DEL', KEYS[2])
for first = 5 + count, #ARGV, 500 do
  redis.call('RPUSH', KEYS[2], unpack(ARGV, first, math.min(first + 499, #ARGV)))
end
if goal == 'dead' then
  redis.call('ZADD', base .. 'dead', 0, id)
elseif group then
  redis.call('ZADD', lane_key(base, group), 0, id)
  ring_rule(base, group)
else
  redis.call('ZADD', base .. 'pending', 0, id)
end
return 1
