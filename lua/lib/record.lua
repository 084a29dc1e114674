--#include lib/check.lua
-- A record on an event stream. Its stream id and its EVT id are one number: <unix ms>-<low 22 bits>. The server refuses an
-- id at or below the last one that the stream generated, so the id is settled here, from the later of TIME and that one.

local EPOCH_MS, LOW, MAX_HIGH = 1704067200000, 4194304, 2199023255551 -- 2024; 2^22; 2^41 - 1
local DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

-- high * 2^22 + low as eleven base-62 digits, and their values. The number has 63 bits, a Lua number 53: so it is divided
-- limb by limb.
local function base62(high, low)
  local out, values = {}, {}
  for place = 11, 1, -1 do
    local rest = high % 62
    high = (high - rest) / 62
    local part = rest * LOW + low
    local digit = part % 62
    low = (part - digit) / 62
    out[place], values[place] = string.sub(DIGITS, digit + 1, digit + 1), digit
  end
  return table.concat(out), values, out
end

-- The digits of the next number: of records that follow one another just the last few change.
local function next62(values, out)
  local place = 11
  while values[place] == 61 do
    values[place], out[place] = 0, '0'
    place = place - 1
  end
  values[place] = values[place] + 1
  out[place] = string.sub(DIGITS, values[place] + 1, values[place] + 1)
  return table.concat(out)
end

local function last_generated(key)
  local info = redis.call('XINFO', 'STREAM', key)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return info[i + 1] end
  end
end

-- Where the next ids of a stream come from: the later of TIME and what it has generated. Before the first write.
local function record_clock(key, now, node)
  local clock = { key = key, node = node, high = now - EPOCH_MS, low = node * 4096 }
  if clock.high < 0 then refuse('EMQDATA', "the server's clock stands before 2024") end
  if expect(key, 'stream') then
    clock.last = last_generated(key)
    local ms, sequence = string.match(clock.last, '^(%d+)%-(%d+)$')
    local last_high, last_low = tonumber(ms) - EPOCH_MS, tonumber(sequence)
    if last_high > clock.high or (last_high == clock.high and last_low >= clock.low) then
      clock.high, clock.low = last_high, last_low + 1
    end
  end
  return clock
end

-- Settles the next record, before the first write: the XADD command as a list, and its EVT id. `fields`: names and values;
-- `id` is put before them. EMQDATA where no EVT id can follow what the stream has generated (an id of the year 2093 or
-- later), NOPERM where this user may not add to it.
local function next_record(clock, fields)
  -- Also a sequence that no EVT id has: the next millisecond is above it.
  if clock.low >= LOW then clock.high, clock.low, clock.values = clock.high + 1, clock.node * 4096, nil end
  if clock.high > MAX_HIGH then
    refuse('EMQDATA', clock.key .. ' has generated the id ' .. shown(clock.last or '') .. ', and no EVT id can follow it')
  end
  local id
  if clock.values then
    id = 'EVT' .. next62(clock.values, clock.out)
  else
    id, clock.values, clock.out = base62(clock.high, clock.low)
    id = 'EVT' .. id
  end
  local command = { 'XADD', clock.key, digits(clock.high + EPOCH_MS) .. '-' .. digits(clock.low), 'id', id }
  for i = 1, #fields do command[5 + i] = fields[i] end
  if redis.acl_check_cmd and not clock.allowed and not redis.acl_check_cmd(unpack(command)) then
    refuse('NOPERM', 'this user may not add to ' .. clock.key)
  end
  clock.allowed = true
  clock.low = clock.low + 1
  return command, id
end

-- The record of a settlement: as next_record, and `settled_at` behind its fields.
local function settle_record(key, now, node, fields)
  fields[#fields + 1] = 'settled_at'
  fields[#fields + 1] = digits(now)
  return (next_record(record_clock(key, now, node), fields))
end
