-- Complete several jobs of one queue: of each what `complete` does, whole or not at all, for a fraction of the time.
-- KEYS: active, completed counter [, stream]
-- ARGV: base, "release" (the claimer's locks go too, and entries in the dead set) or "", node ("" without a stream), then of
--       each job: id, token, "result" or "", the result for a parent, how many texts its record has, and these: names and
--       values
-- Replies: of each job in turn 1; 0 no row; a text that begins with EMQSTALE, EMQDATA or NOPERM: that job was refused.
--          EMQDATA, NOPERM for all of them.
--#include lib/leave.lua
--#include lib/flow.lua
--#include lib/record.lua
--#include lib/counter.lua
--#include lib/dedup.lua
local base, release, stream = ARGV[1], ARGV[2] == 'release', KEYS[3]
local now = now_ms()
expect_leave(base, nil)
expect_rights(KEYS[1], 'HINCRBY', 'UNLINK', 'ZREM')
local counts = countable(base, string.sub(KEYS[2], #base + 1))
local clock = stream and record_clock(stream, now, tonumber(ARGV[3]))
local lanes_checked, taken = {}, {}

-- All that `complete` looks at before its first write; nil where there is no row.
local function planned(at)
  local id = ARGV[at]
  if taken[id] then return nil end -- named before in this call, which takes its row
  local row = base .. 'job:' .. id
  local values = row_fields(row, 'attempts', 'group', 'parent', 'parent_queue', 'parent_policy', 'dedup', 'dedup_release')
  if not values[1] and redis.call('EXISTS', row) == 0 then return nil end
  if attempts_of(row, values[1]) ~= tonumber(ARGV[at + 1]) then refuse('EMQSTALE', 'complete token mismatch') end
  local group, parent = values[2], parent_of(base, values[3], values[4], values[5])
  if group and not lanes_checked[group] then
    expect_lane(base, group)
    lanes_checked[group] = true
  end
  expect_flow(base, parent)
  local record
  if clock then
    local count = tonumber(ARGV[at + 4])
    local fields = { unpack(ARGV, at + 5, at + 4 + count) }
    fields[count + 1], fields[count + 2] = 'settled_at', digits(now)
    record = next_record(clock, fields)
  end
  taken[id] = true
  return {
    id = id, row = row, group = group, parent = parent, record = record, dedup = values[6], moments = values[7],
    result = ARGV[at + 2] == 'result' and ARGV[at + 3] or id,
  }
end

local told, plans, at = {}, {}, 4
while at <= #ARGV do
  local fine, plan = pcall(planned, at)
  if not fine then
    told[#told + 1] = type(plan) == 'table' and plan.err or tostring(plan)
  else
    told[#told + 1] = plan and 1 or 0
    plans[#plans + 1] = plan
  end
  at = at + 5 + tonumber(ARGV[at + 4])
end

-- The first write is below this line.
for _, plan in ipairs(plans) do
  local row = plan.row
  leave_claim(base, plan.id, plan.group)
  release_dedup(base, plan.id, 'completed', plan.dedup, plan.moments)
  redis.call('UNLINK', row, row .. ':dependencies', row .. ':processed', row .. ':failed', row .. ':unsuccessful')
  child_completed(base, plan.parent, plan.id, plan.result)
  if plan.record then redis.call(unpack(plan.record)) end
  if release then
    redis.call('UNLINK', row .. ':lock')
    redis.call('ZREM', base .. 'dead', plan.id)
  end
end
if counts and #plans > 0 then redis.call('HINCRBY', KEYS[2], 'count', #plans) end
write_aside(base)
return told
