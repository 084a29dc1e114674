#!lua
-- Bring one job back to where it stood when it was taken away, as it was: row, logs, flow books. What was done stays on
-- the server until the ledger has it.
-- KEYS: acted, dead, row        ARGV: base, id, how many texts: row, logs, dependencies (0/1), processed, failed,
--       unsuccessful; where it stood ("" the dead set, "pending", "lane" or "schedule <ms>"), its group ("" none); then
--       these texts in that order
-- Replies: done; exists (a job of that id lives); damaged (a set holds the id without a row). EMQKIND, EMQDATA.
--#include lib/lanes.lua
--#include lib/act.lua
local base, id, row, place, group = ARGV[1], ARGV[2], KEYS[3], ARGV[9], ARGV[10]
local due = string.match(place, '^schedule (.+)$')
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
  if place == 'lane' then expect_lane(base, group) end
  if due then expect_instant(due, 'the place of ' .. id) end
  return 'done'
end

local code, at = code_of(), 11

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
  if place == 'lane' then
    redis.call('ZADD', lane_key(base, group), 0, id)
    ring_rule(base, group)
  elseif due then
    redis.call('ZADD', base .. 'schedule', due, id)
  else
    redis.call('ZADD', place == 'pending' and base .. 'pending' or KEYS[2], 0, id)
  end
end
redis.call('RPUSH', KEYS[1], id, code)
redis.call('PEXPIRE', KEYS[1], ACTED_MS)
return code
