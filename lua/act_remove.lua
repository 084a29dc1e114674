#!lua flags=allow-oom
-- A slice of an act: take selected dead jobs away, with rows, logs and books. They are laid aside under names of ours,
-- whole, until the ledger has them.
-- KEYS: acted, dead        ARGV: base, where they are laid (a prefix), then id, attempts, stalls of each
-- Replies: id, code of each: done; alive, changed, damaged, gone, held (a worker's lock stands), parent (its children
--          still report to it). EMQDATA. The parent of a flow child hears that it died.
--#include lib/act.lua
--#include lib/flow.lua
--#include lib/dedup.lua
local BOOKS = { ':logs', ':dependencies', ':processed', ':failed', ':unsuccessful' }
local base, grave = ARGV[1], ARGV[2]
expect(KEYS[2], 'zset')
expect_acted(KEYS[1])
expect_rights(KEYS[2], 'ZREM')
if redis.acl_check_cmd and not redis.acl_check_cmd('RENAME', KEYS[2], KEYS[1]) then
  refuse('NOPERM', "this user may not run 'RENAME', which the script needs")
end

local parents = {}

local function code_of(id, attempts, stalls)
  if is_id(id, 'JOB') and redis.call('EXISTS', grave .. id) == 1 then return 'done' end -- by us, before
  local code = judge_selected(base, KEYS[2], id, attempts, stalls)
  if code then return code end
  local row = base .. 'job:' .. id
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
    redis.call('ZREM', KEYS[2], id)
    release_dedup_of(base, id, 'removed')
    redis.call('RENAME', row, grave .. id)
    for _, book in ipairs(BOOKS) do
      if redis.call('EXISTS', row .. book) == 1 then redis.call('RENAME', row .. book, grave .. id .. book) end
    end
    child_died(base, parents[id], id, 'removed')
  end
end
keep_acted(KEYS[1], codes)
return codes
