#!lua
-- Bring one job back into the dead set as it was taken away: row, logs, flow books. What was done stays on the server
-- until the ledger has it.
-- KEYS: acted, dead, row        ARGV: base, id, how many texts: row, logs, dependencies (0/1), processed, failed,
--       unsuccessful; then these texts in that order
-- Replies: done; exists (a job of that id lives); damaged (a set holds the id without a row). EMQKIND, EMQDATA.
--#include lib/lanes.lua
--#include lib/act.lua
local base, id, row = ARGV[1], ARGV[2], KEYS[3]
expect_job(id)
expect(KEYS[2], 'zset')
expect_acted(KEYS[1])
expect_rights(row, 'HSET', 'SET', 'ZADD')

local function code_of()
  if redis.call('EXISTS', row) == 1 then return 'exists' end
  for _, set in ipairs({ 'pending', 'active', 'schedule', 'dead' }) do
    expect(base .. set, 'zset')
    if redis.call('ZSCORE', base .. set, id) then return 'damaged' end
  end
  return 'done'
end

local code, at = code_of(), 9

local function put(command, key, count)
  redis.call('UNLINK', key)
  for first = at, at + count - 1, 500 do
    redis.call(command, key, unpack(ARGV, first, math.min(first + 499, at + count - 1)))
  end
  at = at + count
end

-- The first write is below this line.
if code == 'done' then
  put('HSET', row, tonumber(ARGV[3]))
  put('RPUSH', row .. ':logs', tonumber(ARGV[4]))
  put('SET', row .. ':dependencies', tonumber(ARGV[5]))
  put('HSET', row .. ':processed', tonumber(ARGV[6]))
  put('HSET', row .. ':failed', tonumber(ARGV[7]))
  put('HSET', row .. ':unsuccessful', tonumber(ARGV[8]))
  redis.call('ZADD', KEYS[2], 0, id)
end
redis.call('RPUSH', KEYS[1], id, code)
redis.call('PEXPIRE', KEYS[1], ACTED_MS)
return code
