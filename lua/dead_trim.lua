#!lua flags=allow-oom
-- Delete dead jobs with their rows, logs and flow books: each only if it is still dead and is what the caller saw.
-- KEYS: lease, dead, exempt
-- ARGV: state, token, run id (lib/fence); base; the jobs (lib/dead_trim)
-- Replies: {how many were deleted, id and reason of each that stays, in turn}. EMQFENCE, EMQDATA.
--#include lib/fence.lua
--#include lib/dead_trim.lua
check_fence(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
expect(KEYS[3], 'hash')
local base = ARGV[4]
local go, stay = doomed(KEYS[2], base, 5)

-- The first write is below this line.
local BOOKS = { '', ':logs', ':lock', ':dependencies', ':processed', ':failed', ':unsuccessful' }
local JOBS = 70 -- a call: 490 keys
for first = 1, #go, JOBS do
  local last = math.min(first + JOBS - 1, #go)
  local keys = {}
  for i = first, last do
    local row = base .. 'job:' .. go[i]
    for _, book in ipairs(BOOKS) do keys[#keys + 1] = row .. book end
  end
  redis.call('ZREM', KEYS[2], unpack(go, first, last))
  redis.call('UNLINK', unpack(keys))
  redis.call('HDEL', KEYS[3], unpack(go, first, last))
end
return { #go, stay }
