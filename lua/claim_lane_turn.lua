-- Claim several jobs of the next lane in rotation: the ring turns one step, and that lane's lowest jobs become active.
-- KEYS: ring, active        ARGV: base, lease ms, how many at most, by ("weight": at most the lane's weight; "" all), gate
--       ("gate" or "")
-- Replies: a list of {id, payload, token, group, when (ms)}, all under one deadline; empty where the ring or its first lane
--          is empty or that lane has no room (it is taken off the ring, and no second one is tried: empty does not mean no
--          work), or the queue is paused; EMQRATE; EMQDATA. A job that can't be claimed is set aside (lib/aside).
--#include lib/gate.lua
--#include lib/lanes.lua
--#include lib/aside.lua
local base, lease, count, gate = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5]
expect(KEYS[1], 'list')
expect(KEYS[2], 'zset')
if gate == 'gate' then count = open_places(base, count) end
if count == 0 then return {} end
local group = redis.call('LINDEX', KEYS[1], 0)
if not group then return {} end
expect_lane(base, group)
local lane = lane_key(base, group)
if ARGV[4] == 'weight' then
  expect(base .. 'gweight', 'hash')
  local weight = redis.call('HGET', base .. 'gweight', group)
  count = math.min(count, math.max(1, weight and whole(weight, base .. 'gweight ' .. group) or 1))
end
local limit, in_flight = redis.call('HGET', base .. 'glimit', group), redis.call('HGET', base .. 'gactive', group)
if limit then count = math.min(count, tonumber(limit) - (in_flight and tonumber(in_flight) or 0)) end

local function checked(id)
  expect_id(id, 'JOB', lane)
  local row = base .. 'job:' .. id
  local values = row_fields(row, 'attempts', 'payload')
  local token = attempts_of(row, values[1]) + 1
  return { id, values[2] or '', token, group }
end

local claims = {}
for page = 0, ASIDE_PAGES - 1 do
  if #claims >= count then break end
  local ids = redis.call('ZRANGE', lane, page * ASIDE_PAGE, (page + 1) * ASIDE_PAGE - 1)
  for _, id in ipairs(ids) do
    if #claims >= count then break end
    claims[#claims + 1] = unless_bad('g:' .. group .. ':pending', id, checked)
  end
  if #ids < ASIDE_PAGE then break end
end
expect_rights(KEYS[2], 'HSET', 'ZADD', 'ZREM')
if redis.acl_check_cmd and not redis.acl_check_cmd('LMOVE', KEYS[1], KEYS[1], 'LEFT', 'RIGHT') then
  refuse('NOPERM', "this user may not run 'LMOVE', which the script needs")
end
local now = now_ms()
local deadline = digits(now + lease)
redis.call('LMOVE', KEYS[1], KEYS[1], 'LEFT', 'RIGHT')
for _, claim in ipairs(claims) do
  claim[5] = now
  redis.call('ZREM', lane, claim[1])
  redis.call('HSET', base .. 'job:' .. claim[1], 'attempts', digits(claim[3]), 'state', 'active')
  redis.call('ZADD', KEYS[2], deadline, claim[1])
end
if #claims > 0 then redis.call('HINCRBY', base .. 'gactive', group, #claims) end
if redis.call('EXISTS', lane) == 0 or not below_limit(base, group) then redis.call('LREM', KEYS[1], 0, group) end
count_claims(#claims)
write_aside(base)
return claims
