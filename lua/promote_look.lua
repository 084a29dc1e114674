#!lua flags=no-writes
-- What the pass `promote` would do: scheduled jobs and repeatables that are due, signals to other queues that wait. A
-- repeatable that can't fire and is named so already is nothing to do.
-- KEYS: schedule, repeat, our own `cron`, flow:outbox, our own `aside`        ARGV: how many ids (0 without)
-- Replies: {scheduled jobs due, repeatables due, signals, repeatables by the calendar whose first instant is not known yet,
--          ids ...}; EMQDATA.
--#include lib/check.lua
for i, kind in ipairs({ 'zset', 'zset', 'zset', 'list', 'hash' }) do expect(KEYS[i], kind) end
local now = now_ms()

local function known_bad(name, score)
  local every = redis.pcall('HGET', string.sub(KEYS[1], 1, -9) .. 'repeat:' .. name, 'every_ms')
  local fine = type(every) == 'string' and #every < 16 and string.find(every, '^%d+$') and tonumber(every) > 0
  return not (fine and tonumber(score) >= MIN_MS) and redis.call('HEXISTS', KEYS[5], name) == 1
end

local function repeatables_due()
  local count = redis.call('ZCOUNT', KEYS[2], '-inf', now)
  if count == 0 or redis.call('EXISTS', KEYS[5]) == 0 then return count end
  local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'WITHSCORES', 'LIMIT', 0, 200)
  for i = 1, #due, 2 do
    if known_bad(due[i], due[i + 1]) then count = count - 1 end
  end
  return count
end

local found = {
  redis.call('ZCOUNT', KEYS[1], digits(MIN_MS), now),
  repeatables_due() + redis.call('ZCOUNT', KEYS[3], '(0', now),
  redis.call('LLEN', KEYS[4]),
  redis.call('ZCOUNT', KEYS[3], '-inf', 0),
}
local limit = tonumber(ARGV[1] or '0')
if limit > 0 then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], digits(MIN_MS), now, 'LIMIT', 0, limit)) do
    found[#found + 1] = id
  end
end
return found
