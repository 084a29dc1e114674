#!lua flags=allow-oom
-- A slice of an act: take selected waiting jobs away, out of pending, their lane or the schedule, with rows, logs and
-- books. They are laid aside under names of ours, whole, with the place that they had, until the ledger has them.
-- KEYS: acted, pending, schedule        ARGV: base, where they are laid (a prefix), then id, attempts, stalls of each
-- Replies: id, code of each: done; moved (it waits no more), changed, damaged, gone, held (a worker's lock stands), parent
--          (its children still report to it). EMQDATA. The parent of a flow child hears that it died.
--#include lib/lanes.lua
--#include lib/act.lua
--#include lib/flow.lua
--#include lib/dedup.lua
local BOOKS = { ':logs', ':dependencies', ':processed', ':failed', ':unsuccessful' }
local base, grave = ARGV[1], ARGV[2]
expect(KEYS[2], 'zset')
expect(KEYS[3], 'zset')
expect_acted(KEYS[1])
expect_rights(KEYS[2], 'SET', 'ZREM')
expect_lane_rights(base)
if redis.acl_check_cmd and not redis.acl_check_cmd('RENAME', KEYS[2], KEYS[1]) then
  refuse('NOPERM', "this user may not run 'RENAME', which the script needs")
end
local places, groups, parents = {}, {}, {}

local function code_of(id, attempts, stalls)
  if is_id(id, 'JOB') and redis.call('EXISTS', grave .. id) == 1 then return 'done' end -- by us, before
  local code = judge_unchanged(base, id, attempts, stalls)
  if code then return code end
  local row = base .. 'job:' .. id
  local due, group = redis.call('ZSCORE', KEYS[3], id), redis.call('HGET', row, 'group')
  if due then
    places[id] = 'schedule ' .. due
  elseif redis.call('ZSCORE', KEYS[2], id) then
    places[id] = 'pending'
  elseif group then
    expect_lane(base, group, true)
    if not redis.call('ZSCORE', lane_key(base, group), id) then return 'moved' end
    places[id], groups[id] = 'lane', group
  else
    return 'moved'
  end
  local bound = bound_code(row)
  if not bound then parents[id] = checked_parent(base, row) end
  return bound or 'done'
end

local codes = judge_jobs(3, code_of)

-- The first write is below this line.
for i = 1, #codes, 2 do
  local id = codes[i]
  local row = base .. 'job:' .. id
  if codes[i + 1] == 'done' and redis.call('EXISTS', grave .. id) == 0 then
    redis.call('SET', grave .. id .. ':place', places[id])
    if groups[id] then
      redis.call('ZREM', lane_key(base, groups[id]), id)
      leave_ring_if_empty(base, groups[id])
    else
      redis.call('ZREM', places[id] == 'pending' and KEYS[2] or KEYS[3], id)
    end
    release_dedup_of(base, id, 'removed')
    redis.call('RENAME', row, grave .. id)
    for _, book in ipairs(BOOKS) do
      if redis.call('EXISTS', row .. book) == 1 then redis.call('RENAME', row .. book, grave .. id .. book) end
    end
    child_died(base, parents[id], id, 'drained')
  end
end
keep_acted(KEYS[1], codes)
return codes
