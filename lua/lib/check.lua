-- Checks that come before the first write. A failed one ends the script with a refusal; nothing has changed then.

-- Plausible instants, unix ms: 2020-01-01 to 2100-01-01. Seconds or microseconds taken for milliseconds fall outside.
local MIN_MS, MAX_MS = 1577836800000, 4102444800000

local function refuse(class, text)
  error({ err = class .. ' ' .. text })
end

-- Refuses a user who may not run every one of these commands on `key`: a right that was taken away must not end the
-- script after its first write. (Redis before 7 can't tell; 7.0 crashes where a command is asked about without its key.)
local rights = {} -- asked and granted, in this run of the script
local function expect_rights(key, ...)
  if not redis.acl_check_cmd then return end
  for _, name in ipairs({ ... }) do
    if not rights[name] and not redis.acl_check_cmd(name, key) then
      refuse('NOPERM', "this user may not run '" .. name .. "', which the script needs")
    end
    rights[name] = true
  end
end

-- `value` shortened and with odd bytes escaped, for a message.
local function shown(value)
  return (string.sub(tostring(value), 1, 40):gsub('[^%w%p ]', function(c)
    return string.format('\\x%02x', string.byte(c))
  end))
end

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- A whole number as text. Lua's own conversion loses digits past 14.
local function digits(number)
  return string.format('%.0f', number)
end

local function expect(key, kind)
  local found = redis.call('TYPE', key)['ok']
  if found ~= 'none' and found ~= kind then
    refuse('EMQDATA', key .. ' is a ' .. found .. ', not a ' .. kind)
  end
  return found ~= 'none'
end

-- Whether `a` comes before `b` in byte order (both of one length). Lua's own `<` follows the server's locale.
local function bytes_below(a, b)
  for i = 1, #a do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return false
end

local function is_id(value, namespace)
  return #value == 14 and string.sub(value, 1, 3) == namespace and not string.find(value, '[^0-9A-Za-z]')
    and not bytes_below('AzL8n0Y58m7', string.sub(value, 4)) -- 2^63 - 1: same length, so byte order is number order
end

-- Refuses an id of another namespace, in the words of the reference.
local function expect_job(id)
  if not is_id(id, 'JOB') then refuse('EMQKIND', 'job id must be JOB-namespaced') end
end

local function expect_id(value, namespace, place)
  if not is_id(value, namespace) then
    refuse('EMQDATA', place .. ' holds "' .. shown(value) .. '", which is no ' .. namespace .. ' id')
  end
end

-- The whole number in `text` (at most 15 digits, so exact in Lua), or a refusal that names its place.
local function whole(text, place)
  if type(text) ~= 'string' or not string.find(text, '^%-?%d+$') or #text > 16 then
    refuse('EMQDATA', place .. ' is "' .. shown(text) .. '", not a whole number')
  end
  return tonumber(text)
end

local function expect_instant(score, place)
  local ms = tonumber(score)
  if not ms or ms < MIN_MS or ms > MAX_MS then
    refuse('EMQDATA', place .. ' has the score ' .. shown(score) .. ', which is no unix time in ms of our days')
  end
  return ms
end

-- Whether a row's attempts are `token`. A row of another type has none.
local function has_token(row, token)
  local found = redis.pcall('HGET', row, 'attempts')
  return type(found) == 'string' and tonumber(found) == tonumber(token)
end

-- Whether a worker's lock stands on a job: the key, or the row's field. A row of another type has no field.
local function is_held(row)
  return redis.call('EXISTS', row .. ':lock') == 1 or redis.pcall('HEXISTS', row, 'lock') == 1
end

-- The values of `fields` in a row; false for each that is not there. Refuses a key that is no hash.
local function row_fields(row, ...)
  local values = redis.pcall('HMGET', row, ...)
  if values.err then
    refuse('EMQDATA', row .. ' is no hash')
  end
  return values
end

-- The row's attempts (the fencing token). Refuses a row without.
local function attempts_of(row, value)
  if not value then
    refuse('EMQDATA', row .. ' has no attempts')
  end
  return whole(value, row .. ' attempts')
end
