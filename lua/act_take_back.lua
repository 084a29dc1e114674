-- A slice of an undo of a requeue: jobs that still wait, and that nobody claimed since, are dead again as they were.
-- What was done stays on the server until the ledger has it.
-- KEYS: acted, dead, pending        ARGV: base, then id, attempts that the requeue left, attempts, stalls, 1 if there was
--       an error, that error, of each
-- Replies: id, code of each: done; moved (it waits no more), changed (claimed since), damaged, gone (no row), dead (it is
--          already). EMQDATA.
--#include lib/lanes.lua
--#include lib/act.lua
local base = ARGV[1]
expect(KEYS[2], 'zset')
expect(KEYS[3], 'zset')
expect_acted(KEYS[1])
expect_rights(KEYS[2], 'HSET', 'ZADD', 'ZREM')
expect_lane_rights(base)
local groups = {}

local function code_of(i)
  local id = ARGV[i]
  if is_id(id, 'JOB') and redis.call('ZSCORE', KEYS[2], id) then return 'dead' end
  local code = judge_unchanged(base, id, ARGV[i + 1], 0)
  if code then return code end
  local group = redis.call('HGET', base .. 'job:' .. id, 'group')
  if redis.call('ZSCORE', KEYS[3], id) then return 'done' end
  if not group then return 'moved' end
  expect_lane(base, group, true)
  if not redis.call('ZSCORE', lane_key(base, group), id) then return 'moved' end
  groups[id] = group
  return 'done'
end

local codes, facts = {}, {}
for i = 2, #ARGV, 6 do
  local fine, code = pcall(code_of, i)
  codes[#codes + 1] = ARGV[i]
  codes[#codes + 1] = fine and code or 'damaged'
  facts[ARGV[i]] = i
end

-- The first write is below this line.
for k = 1, #codes, 2 do
  if codes[k + 1] == 'done' then
    local id = codes[k]
    local i, row = facts[id], base .. 'job:' .. id
    redis.call('HSET', row, 'state', 'dead', 'attempts', ARGV[i + 2])
    if ARGV[i + 3] ~= '0' then redis.call('HSET', row, 'stalled', ARGV[i + 3]) end
    if ARGV[i + 4] == '1' then redis.call('HSET', row, 'last_error', ARGV[i + 5]) end
    if groups[id] then
      redis.call('ZREM', lane_key(base, groups[id]), id)
      leave_ring_if_empty(base, groups[id])
    else
      redis.call('ZREM', KEYS[3], id)
    end
    redis.call('ZADD', KEYS[2], 0, id)
  end
end
keep_acted(KEYS[1], codes)
return codes
