--#include lib/lanes.lua
-- What a healthy queue looks like, shared by the doctor's looks and mends, so that a mend acts on exactly what a look
-- finds. Nothing here writes.

local DOCTOR_PAGE = 1000

-- A number of at most 15 digits, or nil.
local function as_whole(text)
  if type(text) == 'string' and #text <= 16 and string.find(text, '^%-?%d+$') then return tonumber(text) end
  return nil
end

local function is_instant(score)
  local ms = tonumber(score)
  return ms ~= nil and ms >= MIN_MS and ms <= MAX_MS
end

local function kind_of(key)
  return redis.call('TYPE', key)['ok']
end

-- How many jobs of each lane are in flight in truth: the members of active whose row names that lane.
local function true_flights(base)
  local flights, first = {}, 0
  while true do
    local ids = redis.call('ZRANGE', base .. 'active', first, first + DOCTOR_PAGE - 1)
    for _, id in ipairs(ids) do
      local group = redis.pcall('HGET', base .. 'job:' .. id, 'group')
      if type(group) == 'string' then flights[group] = (flights[group] or 0) + 1 end
    end
    if #ids < DOCTOR_PAGE then return flights end
    first = first + DOCTOR_PAGE
  end
end

-- The mend that was asked for, if the look still finds it; else nil.
local function still_found(findings, kind)
  for _, finding in ipairs(findings) do
    if finding[1] == kind then return finding end
  end
  return nil
end
