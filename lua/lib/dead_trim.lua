--#include lib/dead.lua
-- Which dead jobs a trim may delete: all the checks, none of the writes.
--
-- A call's tail, from ARGV[at] on: number of shapes; for each shape how many names and the names of a row's fields; then
-- for each job its id, attempts ("-1" where the row says none), stalls, the number of its shape (0: no digest) and digest.

local function keys_with(base, ids, suffix)
  local keys = {}
  for i, id in ipairs(ids) do keys[i] = base .. 'job:' .. id .. suffix end
  return keys
end

-- A count as the caller tells it too.
local function told(value, default)
  if value and #value <= 18 and string.find(value, '^%d+$') then return value end
  return default
end

-- Which of `ids` have the key; the answer is nearly always none, which one call a chunk tells.
local function having(base, ids, suffix)
  local found = {}
  for first = 1, #ids, 500 do
    local last = math.min(first + 499, #ids)
    local keys = keys_with(base, { unpack(ids, first, last) }, suffix)
    if redis.call('EXISTS', unpack(keys)) > 0 then
      for i, key in ipairs(keys) do
        if redis.call('EXISTS', key) == 1 then found[ids[first + i - 1]] = key end
      end
    end
  end
  return found
end

-- Whether a flow parent still waits for children that would settle with it.
local function open_children(key, row)
  local waits = redis.pcall('GET', key)
  local failed = redis.pcall('HLEN', row .. ':failed')
  if type(waits) ~= 'string' or type(failed) ~= 'number' then return true end
  return (tonumber(waits) or 0) > failed
end

-- Answers the ids that may go, and a flat list of id and reason for the others:
--   gone (not dead), held (:lock), child (of a flow), parent (with open children), changed (died again, or not what was
--   archived), damaged (a row or logs of another type).
local function doomed(dead, base, at)
  expect(dead, 'zset')
  local shapes = {}
  local next_arg = at + 1
  for shape = 1, tonumber(ARGV[at]) do
    local count = tonumber(ARGV[next_arg])
    local names = {}
    for i = 1, count do names[i] = ARGV[next_arg + i] end
    shapes[shape] = names
    next_arg = next_arg + count + 1
  end
  local jobs, ids = {}, {}
  for i = next_arg, #ARGV, 5 do
    jobs[#jobs + 1] = { id = ARGV[i], attempts = ARGV[i + 1], stalls = ARGV[i + 2],
      names = shapes[tonumber(ARGV[i + 3])], digest = ARGV[i + 4] }
    ids[#ids + 1] = ARGV[i]
  end
  local locked, waiting = having(base, ids, ':lock'), having(base, ids, ':dependencies')
  local go, stay = {}, {}
  local function keep(id, reason)
    stay[#stay + 1] = id
    stay[#stay + 1] = reason
  end
  for first = 1, #jobs, 500 do
    local scores = redis.call('ZMSCORE', dead, unpack(ids, first, math.min(first + 499, #ids)))
    for i, score in ipairs(scores) do
      local job = jobs[first + i - 1]
      local row = base .. 'job:' .. job.id
      if not score then
        keep(job.id, 'gone')
      elseif locked[job.id] then
        keep(job.id, 'held')
      else
        local values = redis.pcall('HMGET', row, 'attempts', 'stalled', 'parent')
        if values.err then
          keep(job.id, 'damaged')
        elseif values[3] then
          keep(job.id, 'child')
        elseif waiting[job.id] and open_children(waiting[job.id], row) then
          keep(job.id, 'parent')
        elseif told(values[1], '-1') ~= job.attempts or told(values[2], '0') ~= job.stalls then
          keep(job.id, 'changed')
        elseif not job.names then
          go[#go + 1] = job.id
        elseif redis.call('TYPE', row .. ':logs')['ok'] ~= 'list' and redis.call('EXISTS', row .. ':logs') == 1 then
          keep(job.id, 'damaged')
        elseif redis.call('HLEN', row) ~= #job.names or dead_digest(row, job.names) ~= job.digest then
          keep(job.id, 'changed')
        else
          go[#go + 1] = job.id
        end
      end
    end
  end
  return go, stay
end
