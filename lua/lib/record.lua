--#include lib/check.lua
-- A record on an event stream. Its stream id and its EVT id are one number: <unix ms>-<low 22 bits>. The server refuses an
-- id at or below the last one that the stream generated, so the id is settled here, from the later of TIME and that one.

local EPOCH_MS, LOW, MAX_HIGH = 1704067200000, 4194304, 2199023255551 -- 2024; 2^22; 2^41 - 1
local DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

-- high * 2^22 + low as eleven base-62 digits. The number has 63 bits, a Lua number 53: so it is divided limb by limb.
local function base62(high, low)
  local out = {}
  for place = 11, 1, -1 do
    local rest = high % 62
    high = (high - rest) / 62
    local part = rest * LOW + low
    local digit = part % 62
    low = (part - digit) / 62
    out[place] = string.sub(DIGITS, digit + 1, digit + 1)
  end
  return table.concat(out)
end

local function last_generated(key)
  local info = redis.call('XINFO', 'STREAM', key)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return info[i + 1] end
  end
end

-- Settles the next record of a stream, before the first write: the XADD command as a list. `node`: 0..1023, the writer.
-- `fields`: names and values; `id` is put before them, `settled_at` behind. EMQDATA where no EVT id can follow what the
-- stream has generated (an id of the year 2093 or later), NOPERM where this user may not add to it.
local function settle_record(key, now, node, fields)
  local high, low = now - EPOCH_MS, node * 4096
  if expect(key, 'stream') then
    local last = last_generated(key)
    local ms, sequence = string.match(last, '^(%d+)%-(%d+)$')
    local last_high, last_low = tonumber(ms) - EPOCH_MS, tonumber(sequence)
    if last_high > high or (last_high == high and last_low >= low) then
      high, low = last_high, last_low + 1
      -- Also a sequence that no EVT id has: the next millisecond is above it.
      if low >= LOW then high, low = high + 1, node * 4096 end
    end
    if high > MAX_HIGH then
      refuse('EMQDATA', key .. ' has generated the id ' .. shown(last) .. ', and no EVT id can follow it')
    end
  end
  if high < 0 then refuse('EMQDATA', "the server's clock stands before 2024") end
  local command = { 'XADD', key, digits(high + EPOCH_MS) .. '-' .. digits(low), 'id', 'EVT' .. base62(high, low) }
  for _, text in ipairs(fields) do command[#command + 1] = text end
  command[#command + 1] = 'settled_at'
  command[#command + 1] = digits(now)
  if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(command)) then
    refuse('NOPERM', 'this user may not add to ' .. key)
  end
  return command
end
