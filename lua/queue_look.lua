#!lua flags=no-writes
-- One bounded look at a queue for its operator: how much waits where, since when, what is overdue, who leads it. What is
-- not as the wire says is named, and the rest is told all the same.
-- KEYS: pending, active, schedule, dead, meta, ring, paused, glimit, gactive, repeat, metrics:completed, metrics:failed,
--       lease, aside        ARGV: base, how many lanes are looked at, then names of streams
-- Replies: {now, pending, active, scheduled, dead, paused (0/1), ceiling ("" none), rate ("" none), waiting in lanes,
--          lanes with work, those of them at their limit, paused lanes, 1 if there are more lanes, first pending id, first
--          id of a lane, first deadline, lapsed, first due, overdue, next instant of the repeatable that is due first, its
--          name, completed, failed, set aside, {fields of the lease}, {what is wrong with a key}, then for each stream
--          {length, last generated id, id of the newest archived record}} ("" each where there is none).
--#include lib/lanes.lua
local base, most, now = ARGV[1], tonumber(ARGV[2]), now_ms()
local KINDS = {
  'zset', 'zset', 'zset', 'zset', 'hash', 'list', 'set', 'hash', 'hash', 'zset', 'hash', 'hash', 'hash', 'hash',
}
local wrong, fine = {}, {}

local function is(key, kind)
  local found = redis.call('TYPE', key)['ok']
  if found == kind or found == 'none' then return true end
  wrong[#wrong + 1] = key .. ' is a ' .. found .. ', not a ' .. kind
  return false
end
for i, key in ipairs(KEYS) do fine[i] = is(key, KINDS[i]) end

local function ask(i, default, command, ...)
  if not fine[i] then return default end
  return redis.call(command, KEYS[i], ...) or default
end

-- Lanes that have work are on the ring, paused, at a limit or in flight. Each of these is read up to a bound.
local seen, lanes, full, in_lanes, first, looked = {}, 0, 0, 0, '', 0
local more = 0
local function look(groups, step)
  for i = 1, #groups, step do
    local group = groups[i]
    if not seen[group] and is_id(group, 'GRP') then
      if looked >= most then more = 1 return end
      looked, seen[group] = looked + 1, true
      local key = lane_key(base, group)
      if is(key, 'zset') then
        local depth = redis.call('ZCARD', key)
        if depth > 0 then
          in_lanes, lanes = in_lanes + depth, lanes + 1
          if fine[8] and fine[9] and not below_limit(base, group) then full = full + 1 end
          local id = redis.call('ZRANGE', key, 0, 0)[1]
          if first == '' or bytes_below(id, first) then first = id end
        end
      end
    end
  end
end
local function look_at(i, size, command, scan, step)
  local count = ask(i, 0, size)
  if count == 0 then return end
  if count <= most then look(redis.call(command, KEYS[i]), 1) return end
  more = 1
  look(redis.call(scan, KEYS[i], 0, 'COUNT', most)[2], step)
end
if ask(6, 0, 'LLEN') > most then more = 1 end
look(ask(6, {}, 'LRANGE', 0, most - 1), 1)
look_at(7, 'SCARD', 'SMEMBERS', 'SSCAN', 1)
look_at(8, 'HLEN', 'HKEYS', 'HSCAN', 2)
look_at(9, 'HLEN', 'HKEYS', 'HSCAN', 2)

local due = ask(10, {}, 'ZRANGE', 0, 0, 'WITHSCORES')
local out = {
  digits(now), ask(1, 0, 'ZCARD'), ask(2, 0, 'ZCARD'), ask(3, 0, 'ZCARD'), ask(4, 0, 'ZCARD'),
  ask(5, 0, 'HEXISTS', 'paused'), ask(5, '', 'HGET', 'concurrency'), ask(5, '', 'HGET', 'max'),
  in_lanes, lanes, full, ask(7, 0, 'SCARD'), more,
  ask(1, {}, 'ZRANGE', 0, 0)[1] or '', first,
  ask(2, {}, 'ZRANGEBYSCORE', digits(MIN_MS), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or '',
  ask(2, 0, 'ZCOUNT', digits(MIN_MS), digits(now)),
  ask(3, {}, 'ZRANGEBYSCORE', digits(MIN_MS), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or '',
  ask(3, 0, 'ZCOUNT', digits(MIN_MS), digits(now)),
  due[2] or '', due[1] or '', ask(11, '0', 'HGET', 'count'), ask(12, '0', 'HGET', 'count'), ask(14, 0, 'HLEN'),
  ask(13, {}, 'HGETALL'), wrong,
}
for i = 3, #ARGV do
  local key = base .. 'stream:' .. ARGV[i]
  local told = { 0, '', '' }
  if is(key, 'stream') and redis.call('EXISTS', key) == 1 then
    told[1] = redis.call('XLEN', key)
    local facts = redis.call('XINFO', 'STREAM', key)
    for j = 1, #facts, 2 do
      if facts[j] == 'last-generated-id' then told[2] = facts[j + 1] end
    end
  end
  if is(key .. ':archived', 'string') then told[3] = redis.call('GET', key .. ':archived') or '' end
  out[#out + 1] = told
end
return out
