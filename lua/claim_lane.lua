-- Claim from the lanes in rotation: the ring turns one step, that lane's lowest job becomes active.
-- KEYS: ring, active        ARGV: base, lease ms, how many, gate ("gate" or ""), flow children ("refuse" or "")
-- Replies: a list of {id, payload, token, group, when (ms)}; empty where there is nothing (an empty lane found on the ring is
-- taken off it), or the queue is paused; EMQRATE; EMQDATA. A job that can't be claimed is set aside (lib/aside), and
--          the next one of its lane is taken.
--#include lib/gate.lua
--#include lib/lanes.lua
--#include lib/aside.lua
local base, lease, count, gate, flows = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
expect(KEYS[1], 'list')
expect(KEYS[2], 'zset')
if gate == 'gate' then count = open_places(base, count) end
local now = now_ms()
local deadline = digits(now + lease)
local claims = {}

local function checked(id, group)
  expect_id(id, 'JOB', lane_key(base, group))
  local row = base .. 'job:' .. id
  local values = row_fields(row, 'attempts', 'payload', 'parent')
  local token = attempts_of(row, values[1]) + 1
  expect_no_parent(id, values[3], flows)
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
  expect_lane(base, group)
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
    redis.call('LREM', KEYS[1], 0, group)
    break
  else
    redis.call('LMOVE', KEYS[1], KEYS[1], 'LEFT', 'RIGHT')
    redis.call('ZREM', lane_key(base, group), head.id)
    redis.call('HSET', base .. 'job:' .. head.id, 'attempts', digits(head.token), 'state', 'active')
    redis.call('ZADD', KEYS[2], deadline, head.id)
    redis.call('HINCRBY', base .. 'gactive', group, 1)
    if redis.call('EXISTS', lane_key(base, group)) == 0 or not below_limit(base, group) then
      redis.call('LREM', KEYS[1], 0, group)
    end
    past = 0
    claims[#claims + 1] = { head.id, head.payload, head.token, group, now }
  end
end
write_aside(base)
return claims
