--#include lib/lanes.lua
--#include lib/aside.lua
-- Repeatables. Beside the wire's `repeat` and `repeat:<name>` stand, under names of ours: `repeat` (hash: name -> the next
-- instant that we set, by which another pump's hand is seen); `repeat:<name>` (hash: what the YAML says beyond the wire:
-- lane, and of one that goes by the calendar template, cron and zone); `cron` (zset: these by their next instant, 0 before
-- it is known), at which EchoMQ's pump does not look.

local function ours(base) return 'emq-ops:' .. string.sub(base, 5) end

-- Whether this user may write the mark: one who may not, writes none.
local function may_mark(key)
  return not redis.acl_check_cmd or (redis.acl_check_cmd('HSET', key, 'f', 'v') and redis.acl_check_cmd('HDEL', key, 'f'))
end

-- The next instant of a repeatable is ours (nil: it has none any more). Without `new` only where one stands: whoever looks
-- first marks the others.
local function mark_repeatable(base, name, instant, new)
  local key = ours(base) .. 'repeat'
  local kind = redis.call('TYPE', key)['ok']
  if not may_mark(key) or (kind ~= 'none' and kind ~= 'hash') then return end
  if instant then
    if new or redis.call('HEXISTS', key, name) == 1 then redis.call('HSET', key, name, instant) end
  elseif redis.call('HEXISTS', key, name) == 1 then
    redis.call('HDEL', key, name)
  end
end

-- Refuses a user who may not write what the YAML says beyond the wire.
local function expect_ours(base, name)
  expect(ours(base) .. 'repeat:' .. name, 'hash')
  expect(ours(base) .. 'cron', 'zset')
  if not redis.acl_check_cmd then return end
  for _, command in ipairs({ 'ZADD', 'ZREM' }) do
    if not redis.acl_check_cmd(command, ours(base) .. 'cron', '0', name) then
      refuse('NOPERM', "this user may not run '" .. command .. "', which the script needs")
    end
  end
  if not redis.acl_check_cmd('HSET', ours(base) .. 'repeat:' .. name, 'f', 'v') then
    refuse('NOPERM', "this user may not run 'HSET', which the script needs")
  end
end

-- What the occurrence of a repeatable would be: {set, payload, group, next instant}; before the first write. `said`: the
-- next instant of one that goes by the calendar, else ''. Refuses what can't fire.
local function occurrence_of(name, base, score, said, now)
  local row, more = base .. 'repeat:' .. name, redis.call('HMGET', ours(base) .. 'repeat:' .. name, 'lane', 'template')
  local found = { set = base .. 'repeat', group = more[1] or nil }
  if said ~= '' then
    found.set, found.payload, found.next = ours(base) .. 'cron', more[2] or '', tonumber(said)
  else
    local values = row_fields(row, 'every_ms', 'template')
    local every = whole(values[1], row .. ' every_ms')
    if every <= 0 then refuse('EMQDATA', row .. ' every_ms is not positive') end
    expect_instant(score, base .. 'repeat ' .. name)
    found.payload, found.next = values[2] or '', now + every
  end
  if found.group then expect_lane(base, found.group) end
  return found
end
