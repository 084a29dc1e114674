--#include lib/aside.lua
-- The counters of settled jobs: `metrics:completed` and `metrics:failed`, field `count`.

-- What the counter at `key` says, and nil; 0 and what is wrong where it can't be counted on: a key of another type, no
-- number. A user who may not read it is refused.
local function read_counter(key)
  local found = redis.pcall('HGET', key, 'count')
  if type(found) == 'table' then
    if not string.find(found.err, 'WRONGTYPE') then error(found) end
    return 0, 'no hash'
  end
  if not found then return 0 end
  if not string.find(found, '^%-?%d+$') or #found > 16 then
    return 0, 'count is "' .. shown(found) .. '", not a whole number'
  end
  return tonumber(found)
end

-- Whether the counter can be counted on. No job waits for one that can't: it stays as it is, not counted, and is named as
-- set aside.
local function countable(base, name)
  local _, wrong = read_counter(base .. name)
  if wrong then set_aside(name, name, wrong) end
  return not wrong
end
