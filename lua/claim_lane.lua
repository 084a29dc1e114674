-- Claim from the lanes in rotation: the ring turns one step, that lane's lowest job becomes active. By weight, a lane has as
-- many jobs claimed as it weighs before the ring turns, over several calls too: `emq-ops:{q}:turn` says how far its turn is.
-- KEYS: ring, active        ARGV: base, lease ms, how many, gate ("gate" or ""), by ("weight" or
--       "": one job a lane a turn, and an empty lane found on the ring, which is taken off it, ends the claim)
-- Replies: a list of {id, payload, token, group, when (ms)}; empty where there is nothing, or the queue is paused; EMQRATE;
--          EMQDATA. A job that can't be claimed is set aside (lib/aside), and the next one of its lane is taken; a weight that
--          is no number is 1, and named there.
--#include lib/gate.lua
--#include lib/lanes.lua
--#include lib/aside.lua
local base, lease, count, gate = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
expect(KEYS[1], 'list')
expect(KEYS[2], 'zset')
if gate == 'gate' then count = open_places(base, count) end
if count == 0 then return {} end
local now = now_ms()
local deadline = digits(now + lease)
local claims = {}

-- The turn of a lane by weight: {lane, served}. `noted`: what stands on the server.
local weighted = ARGV[5] == 'weight'
local by_weight = weighted and expect(base .. 'gweight', 'hash')
local turn_key, turn, noted, weights = 'emq-ops:' .. string.sub(base, 5) .. 'turn', {}, {}, {}
if by_weight and expect(turn_key, 'hash') then
  noted = redis.call('HMGET', turn_key, 'lane', 'served')
  turn = { lane = noted[1], served = tonumber(noted[2] or '') or 0 }
end

local function weight_of(group)
  if not weights[group] then
    local text = redis.call('HGET', base .. 'gweight', group)
    local weight = text and string.find(text, '^%-?%d+$') and #text <= 10 and tonumber(text)
    if text and not weight then set_aside('gweight', group, 'EMQDATA "' .. shown(text) .. '" is no weight') end
    weights[group] = math.max(weight or 1, 1)
  end
  return weights[group]
end

-- Whether the ring turns with the next job of `group`.
local function ends_turn(group)
  if not by_weight then return true end
  local served = (turn.lane == group and turn.served or 0) + 1
  turn = { lane = group, served = served }
  if served < weight_of(group) then return false end
  turn = {}
  return true
end

-- A user who may not write there serves weights within each call.
local function note_turn()
  if not by_weight or turn.lane == (noted[1] or nil) and (turn.served or 0) == (tonumber(noted[2] or '') or 0) then return end
  if redis.acl_check_cmd
    and not (redis.acl_check_cmd('HSET', turn_key, 'f', 'v') and redis.acl_check_cmd('UNLINK', turn_key)) then return end
  if turn.lane then
    redis.call('HSET', turn_key, 'lane', turn.lane, 'served', digits(turn.served))
  else
    redis.call('UNLINK', turn_key)
  end
end

local function checked(id, group)
  expect_id(id, 'JOB', lane_key(base, group))
  local row = base .. 'job:' .. id
  local values = row_fields(row, 'attempts', 'payload')
  local token = attempts_of(row, values[1]) + 1
  return { id = id, payload = values[2] or '', token = token }
end

-- The lowest job of a lane that can be claimed, past what can't; and whether the lane has any member.
local function first_of(group)
  local set = 'g:' .. group .. ':pending'
  for page = 0, ASIDE_PAGES - 1 do
    local size = page == 0 and 1 or ASIDE_PAGE
    local from = page == 0 and 0 or 1 + (page - 1) * ASIDE_PAGE
    local ids = redis.call('ZRANGE', lane_key(base, group), from, from + size - 1)
    if page == 0 and #ids == 0 then return nil, false end
    for _, id in ipairs(ids) do
      local head = unless_bad(set, id, checked, group)
      if head then return head, true end
    end
    if #ids < size then break end
  end
  return nil, true
end

-- Lanes of which every member is set aside are turned past.
local stuck = {}

local function head_of_ring()
  local group = redis.call('LINDEX', KEYS[1], 0)
  if not group then return nil end
  if stuck[group] then return { group = group, stuck = true } end
  if not expect_lane(base, group) then return { group = group } end
  local head, work = first_of(group)
  if not work then return { group = group } end
  expect_rights(KEYS[2], 'HSET', 'ZADD', 'ZREM')
  if redis.acl_check_cmd and not redis.acl_check_cmd('LMOVE', KEYS[1], KEYS[1], 'LEFT', 'RIGHT') then
    refuse('NOPERM', "this user may not run 'LMOVE', which the script needs")
  end
  if not head then return { group = group, stuck = true } end
  head.group = group
  return head
end

local turns, past = 0, 0
while #claims < count do
  local fine, head = true, nil
  if turns == 0 then
    head = head_of_ring()
  else
    -- As in claim: a batch ends before the first lane that can't be served.
    fine, head = pcall(head_of_ring)
  end
  turns = turns + 1
  if not fine or not head then break end
  local group = head.group
  if head.stuck then
    stuck[group] = true
    past = past + 1
    if past > redis.call('LLEN', KEYS[1]) then break end
    redis.call('LMOVE', KEYS[1], KEYS[1], 'LEFT', 'RIGHT')
  elseif not head.id then
    redis.call('LREM', KEYS[1], 1, group)
    if not weighted then break end
  else
    local turned = ends_turn(group)
    if turned then redis.call('LMOVE', KEYS[1], KEYS[1], 'LEFT', 'RIGHT') end
    redis.call('ZREM', lane_key(base, group), head.id)
    redis.call('HSET', base .. 'job:' .. head.id, 'attempts', digits(head.token), 'state', 'active')
    redis.call('ZADD', KEYS[2], deadline, head.id)
    redis.call('HINCRBY', base .. 'gactive', group, 1)
    if redis.call('EXISTS', lane_key(base, group)) == 0 or not below_limit(base, group) then
      -- From the end where it stands: a ring may be long. A lane that stood there twice is found at its limit, or empty.
      redis.call('LREM', KEYS[1], turned and -1 or 1, group)
      turn = {}
    end
    past = 0
    claims[#claims + 1] = { head.id, head.payload, head.token, group, now }
  end
end
note_turn()
count_claims(#claims)
write_aside(base)
return claims
