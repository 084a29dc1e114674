-- Reap lapsed leases: back to pending or their lane, without a count.
-- KEYS: active, pending        ARGV: base, limit, group ("" for all; else only that lane's jobs)
-- Replies: how many; EMQDATA.
--#include lib/batch.lua
local base, limit, only = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local batch = new_batch(base)
local now = now_ms()
local taken, jobs = {}, {}

local function take(id)
  local group = row_fields(base .. 'job:' .. id, 'group')[1]
  if only ~= '' and group ~= only then return end
  taken[#taken + 1] = id
  jobs[#jobs + 1] = { group = group }
end

if only == '' then
  for _, id in ipairs(due_members(KEYS[1], now, limit)) do take(id) end
else
  -- One lane's jobs may stand anywhere among the lapsed: look through them page by page.
  local offset = 0
  while #taken < limit do
    local page = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', offset, 500)
    if #page == 0 then break end
    for i = 1, #page, 2 do
      expect_id(page[i], 'JOB', KEYS[1])
      expect_instant(page[i + 1], KEYS[1] .. ' ' .. page[i])
      if #taken < limit then take(page[i]) end
    end
    offset = offset + #page / 2
  end
end
load_lanes(batch, jobs)
for i, id in ipairs(taken) do
  local group = jobs[i].group
  if group then batch_leave_flight(batch, group) end
  batch_pending(batch, id, group)
end
remove_members(KEYS[1], taken)
for _, id in ipairs(taken) do redis.call('HSET', base .. 'job:' .. id, 'state', 'pending') end
write_batch(batch)
return #taken
