-- A slice of an act: requeue selected dead jobs, each as `requeue` does it. What was done stays on the server until the
-- ledger has it.
-- KEYS: acted, dead, exempt        ARGV: base, how many attempts they keep at the most ("" all), then id, attempts, stalls
--       (as they were when it was selected) of each
-- Replies: id, code of each: done; alive (not dead any more), changed (died again since), damaged, gone (no row), held
--          (attempts are the token: a worker whose lock stands could settle it with an old one). EMQDATA.
--#include lib/revive.lua
--#include lib/act.lua
local base, most = ARGV[1], tonumber(ARGV[2])
expect(KEYS[2], 'zset')
expect(KEYS[3], 'hash')
expect(base .. 'pending', 'zset') -- of no job: else each of them would be called damaged
expect_acted(KEYS[1])
expect_rights(KEYS[2], 'HDEL', 'HSET', 'ZADD', 'ZREM')
expect_lane_rights(base) -- here: a refusal further down is one job's
local groups = {}

local function code_of(id, attempts, stalls)
  local code = judge_selected(base, KEYS[2], id, attempts, stalls)
  if code then return code end
  local ended, group = check_revive(base, id)
  if ended then return 'alive' end
  local row = base .. 'job:' .. id
  if most and is_held(row) then return 'held' end
  groups[id] = group
  return 'done'
end

local codes = judge_jobs(3, code_of)

-- The first write is below this line.
for i = 1, #codes, 2 do
  if codes[i + 1] == 'done' then
    local id = codes[i]
    revive(base, id, groups[id])
    local row = base .. 'job:' .. id
    redis.call('HDEL', row, 'stalled')
    if most and tonumber(redis.call('HGET', row, 'attempts')) > most then redis.call('HSET', row, 'attempts', digits(most)) end
    redis.call('HDEL', KEYS[3], id)
  end
end
keep_acted(KEYS[1], codes)
return codes
