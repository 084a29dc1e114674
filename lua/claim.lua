-- Claim the lowest flat jobs: attempts + 1, active until now + lease.
-- KEYS: pending, active        ARGV: base, lease ms, how many, gate ("gate" or "")
-- Replies: a list of {id, payload, token, "", when (ms)}, empty where there is nothing or the queue is paused; EMQRATE;
--          EMQDATA. A member that can't be claimed is set aside (lib/aside), and the next one is taken.
--#include lib/gate.lua
--#include lib/aside.lua
local base, lease, count, gate = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
expect(KEYS[1], 'zset')
expect(KEYS[2], 'zset')
if gate == 'gate' then count = open_places(base, count) end
if count == 0 then return {} end
local claims = {}

local function checked(id)
  expect_id(id, 'JOB', KEYS[1])
  local row = base .. 'job:' .. id
  local values = row_fields(row, 'attempts', 'payload')
  local token = attempts_of(row, values[1]) + 1
  return { id, values[2] or '', token, '' }
end

-- Past what can't be claimed, to what can.
for page = 0, ASIDE_PAGES - 1 do
  local size = page == 0 and count or ASIDE_PAGE
  local from = page == 0 and 0 or count + (page - 1) * ASIDE_PAGE
  local ids = redis.call('ZRANGE', KEYS[1], from, from + size - 1)
  for _, id in ipairs(ids) do
    if #claims < count then claims[#claims + 1] = unless_bad('pending', id, checked) end
  end
  if #claims >= count or #ids < size then break end
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
count_claims(#claims)
write_aside(base)
return claims
