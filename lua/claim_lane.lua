-- Claim from the lanes in rotation: the ring turns one step, that lane's lowest job becomes active.
-- KEYS: ring, active        ARGV: base, lease ms, how many, gate ("gate" or ""), flow children ("refuse" or "")
-- Replies: a list of {id, payload, token, group, when (ms)}; empty where there is nothing (an empty lane found on the ring is
-- taken off it), or the queue is paused; EMQRATE; EMQDATA.
--#include lib/gate.lua
--#include lib/lanes.lua
local base, lease, count, gate, flows = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
expect(KEYS[1], 'list')
expect(KEYS[2], 'zset')
if gate == 'gate' then count = open_places(base, count) end
local now = now_ms()
local deadline = digits(now + lease)
local claims = {}

local function head_of_ring()
  local group = redis.call('LINDEX', KEYS[1], 0)
  if not group then return nil end
  expect_lane(base, group)
  local id = redis.call('ZRANGE', lane_key(base, group), 0, 0)[1]
  if not id then return { group = group } end
  expect_id(id, 'JOB', lane_key(base, group))
  local row = base .. 'job:' .. id
  local values = row_fields(row, 'attempts', 'payload', 'parent')
  expect_no_parent(id, values[3], flows)
  expect_rights(KEYS[2], 'HSET', 'ZADD', 'ZREM')
  if redis.acl_check_cmd and not redis.acl_check_cmd('LMOVE', KEYS[1], KEYS[1], 'LEFT', 'RIGHT') then
    refuse('NOPERM', "this user may not run 'LMOVE', which the script needs")
  end
  return { group = group, id = id, payload = values[2] or '', token = attempts_of(row, values[1]) + 1 }
end

for i = 1, count do
  local fine, head = true, nil
  if i == 1 then
    head = head_of_ring()
  else
    -- As in claim: a batch ends before the first job that can't be claimed.
    fine, head = pcall(head_of_ring)
  end
  if not fine or not head then break end
  local group = head.group
  if not head.id then
    redis.call('LREM', KEYS[1], 0, group)
    break
  end
  redis.call('LMOVE', KEYS[1], KEYS[1], 'LEFT', 'RIGHT')
  redis.call('ZREM', lane_key(base, group), head.id)
  redis.call('HSET', base .. 'job:' .. head.id, 'attempts', digits(head.token), 'state', 'active')
  redis.call('ZADD', KEYS[2], deadline, head.id)
  redis.call('HINCRBY', base .. 'gactive', group, 1)
  if redis.call('EXISTS', lane_key(base, group)) == 0 or not below_limit(base, group) then
    redis.call('LREM', KEYS[1], 0, group)
  end
  claims[i] = { head.id, head.payload, head.token, group, now }
end
return claims
