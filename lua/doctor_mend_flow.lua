#!lua flags=allow-oom
-- Mend one thing that the doctor found wrong with a flow, if it is still so.
-- KEYS: active (names the slot)        ARGV: base, id, kind of damage, how many children the parent waited for when it was seen
-- Replies: 1 mended; 0 no longer so, nothing changed; EMQDATA.
--   untold_death: the parent of this dead child hears of it. unreleased_parent: it goes to pending. lost_children: it dies, as
--   by the death of a child, and its own parent hears of that.
--#include lib/flow.lua
local base, id, kind = ARGV[1], ARGV[2], ARGV[3]
local row = base .. 'job:' .. id
if not expect(row, 'hash') then return 0 end
for _, name in ipairs({ 'pending', 'dead' }) do expect(base .. name, 'zset') end
expect_rights(KEYS[1], 'HSET', 'ZADD')
local parent = checked_parent(base, row)
if kind == 'untold_death' then
  if not parent or not redis.call('ZSCORE', base .. 'dead', id) then return 0 end
  child_died(base, parent, id, redis.call('HGET', row, 'last_error') or 'died')
  return 1
end
if redis.call('HGET', row, 'state') ~= 'awaiting_children' then return 0 end
local open = redis.call('GET', row .. ':dependencies')
if kind == 'unreleased_parent' then
  if open and whole(open, row .. ':dependencies') > 0 then return 0 end
  redis.call('HSET', row, 'state', 'pending')
  redis.call('ZADD', base .. 'pending', 0, id)
  return 1
end
if open ~= ARGV[4] then return 0 end
redis.call('HSET', row, 'state', 'dead', 'last_error', 'flow children are gone')
redis.call('ZADD', base .. 'dead', 0, id)
child_died(base, parent, id, 'flow children are gone')
return 1
