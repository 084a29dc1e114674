-- One occurrence of a repeatable that is due: a fresh job with its template, and the next instant. Compared with the
-- score that was read: of several that saw it due, one admits it. Missed occurrences are not made up for.
-- KEYS: lease, repeat, row, pending, our own `cron`
-- ARGV: state, token, run id (lib/fence; state "" without a lease); base; name; score that was read; id of the fresh job;
--       the next instant of one that goes by the calendar ("" for one with a period, which is due a period from now)
-- Replies: {1, next instant (unix ms)}; {2, next instant}: by the calendar, and now its first is known; {0, ""} not due,
--          or somebody else advanced it; {-1, ""} there is none of that name (an entry without one is taken away);
--          {-2, why} it can't fire, and is set aside. EMQFENCE, EMQKIND, EMQDATA, EMQSTATE.
--#include lib/repeat.lua
--#include lib/fence.lua
local base, name, score, id, said = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
expect_job(id)
local now = ARGV[1] ~= '' and check_fence(KEYS[1], ARGV[1], ARGV[2], ARGV[3]) or now_ms()
expect(KEYS[2], 'zset')
expect(KEYS[4], 'zset')
expect(KEYS[5], 'zset')
expect_rights(KEYS[4], 'HSET', 'ZADD', 'ZREM')
local set = said == '' and KEYS[2] or KEYS[5]
if redis.call('ZSCORE', set, name) ~= score then return { 0, '' } end
if said ~= '' then
  expect_ours(base, name)
  if tonumber(said) <= now then return { 0, '' } end -- the clock went on meanwhile
end
if tonumber(score) > now then return { 0, '' } end
if said == '' and redis.call('EXISTS', base .. 'repeat:' .. name) == 0 then
  redis.call('ZREM', KEYS[2], name)
  mark_repeatable(base, name, nil)
  return { -1, '' }
end
local found = unless_bad('repeat', name, occurrence_of, base, score, said, now)
if not found then
  write_aside(base)
  return { -2, aside[1][3] }
end
local following = digits(found.next)
if said ~= '' and tonumber(score) <= 0 then
  redis.call('ZADD', KEYS[5], following, name)
  return { 2, following }
end
if redis.call('EXISTS', KEYS[3]) == 1 then refuse('EMQSTATE', 'job ' .. id .. ' exists') end

-- The first write is below this line.
redis.call('HSET', KEYS[3], 'state', 'pending', 'attempts', '0', 'payload', found.payload)
if found.group then
  redis.call('HSET', KEYS[3], 'group', found.group)
  redis.call('ZADD', lane_key(base, found.group), 0, id)
  ring_rule(base, found.group)
else
  redis.call('ZADD', KEYS[4], 0, id)
end
redis.call('ZADD', set, following, name)
if said == '' then mark_repeatable(base, name, following, ARGV[1] ~= '') end
forget_aside(base, name)
return { 1, following }
