-- Claim the lowest flat jobs: attempts + 1, active until now + lease.
-- KEYS: pending, active        ARGV: base, lease ms, how many, gate ("gate" or ""), flow children ("refuse" or "")
-- Replies: a list of {id, payload, token, "", when (ms)}, empty where there is nothing or the queue is paused; EMQRATE;
--          EMQDATA.
--#include lib/gate.lua
local base, lease, count, gate, flows = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
expect(KEYS[1], 'zset')
expect(KEYS[2], 'zset')
if gate == 'gate' then count = open_places(base, count) end
if count == 0 then return {} end
local ids = redis.call('ZRANGE', KEYS[1], 0, count - 1)
local claims = {}
local function checked(id)
  expect_id(id, 'JOB', KEYS[1])
  local row = base .. 'job:' .. id
  local values = row_fields(row, 'attempts', 'payload', 'parent')
  local token = attempts_of(row, values[1]) + 1
  expect_no_parent(id, values[3], flows)
  return { id, values[2] or '', token, '' }
end
if ids[1] then claims[1] = checked(ids[1]) end
for i = 2, #ids do
  -- A batch ends before the first job that can't be claimed; the next call says why.
  local fine, claim = pcall(checked, ids[i])
  if not fine then break end
  claims[i] = claim
end
if claims[1] then expect_rights(KEYS[2], 'HSET', 'ZADD', 'ZREM') end
local now = now_ms()
local deadline = digits(now + lease)
for _, claim in ipairs(claims) do
  claim[5] = now
  redis.call('ZREM', KEYS[1], claim[1])
  redis.call('HSET', base .. 'job:' .. claim[1], 'attempts', digits(claim[3]), 'state', 'active')
  redis.call('ZADD', KEYS[2], deadline, claim[1])
end
return claims
