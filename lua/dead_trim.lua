#!lua flags=allow-oom
-- Delete dead jobs with their rows, logs and flow books: each only if it is still dead and is what the caller saw. The
-- parent of a flow child hears that it died, if it did not yet.
-- KEYS: lease, dead, exempt
-- ARGV: state, token, run id (lib/fence); base; the jobs (lib/dead_trim)
-- Replies: {how many were deleted, id and reason of each that stays, in turn}. EMQFENCE, EMQDATA.
--#include lib/fence.lua
--#include lib/dead_trim.lua
--#include lib/dedup.lua
check_fence(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
expect_rights(KEYS[2], 'DECR', 'DEL', 'HDEL', 'HSET', 'RPUSH', 'UNLINK', 'ZADD', 'ZREM')
expect(KEYS[3], 'hash')
local base = ARGV[4]
local go, rows, books, stay, dedups, children = doomed(KEYS[2], base, 5)

local heard = {}

-- The first write is below this line. No lock stands on a job that goes, and which books there are is known.
for _, child in ipairs(children) do
  child_died(base, child[2], child[1], child[3])
  local row = base .. 'job:' .. child[2].job
  if not child[2].queue and redis.call('EXISTS', row) == 1 then heard[child[2].job] = row end
end
for _, id in ipairs(go) do
  if heard[id] then books[#books + 1] = heard[id] .. ':failed' end -- the parent goes, too
end
local JOBS = 250 -- a call: 500 keys
local exempted = redis.call('EXISTS', KEYS[3]) == 1
for first = 1, #go, JOBS do
  local last = math.min(first + JOBS - 1, #go)
  local keys = {}
  for i = first, last do
    keys[#keys + 1] = rows[i]
    keys[#keys + 1] = rows[i] .. ':logs'
  end
  redis.call('ZREM', KEYS[2], unpack(go, first, last))
  redis.call('DEL', unpack(keys))
  if exempted then redis.call('HDEL', KEYS[3], unpack(go, first, last)) end
end
for _, one in ipairs(dedups) do release_dedup(base, one[1], 'removed', one[2], one[3]) end
for first = 1, #books, 500 do redis.call('DEL', unpack(books, first, math.min(first + 499, #books))) end
return { #go, stay }
