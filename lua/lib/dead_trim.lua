--#include lib/dead.lua
-- Which dead jobs a trim may delete: all the checks, none of the writes.
--
-- A call's tail, from ARGV[at] on: "flow" where some of the jobs may be flow parents, "flat" where none is; number of
-- shapes. 0: then for each job its id, attempts ("-1" where the row says none) and stalls. Else for each shape how many
-- names and the names of a row's fields; then for each job its id, attempts, stalls, the number of its shape, and its
-- digest.

-- Whether a row's count is what the caller was told; `default` stands for one that is absent or no number.
local function as_told(value, told, default)
  if value == told then return true end
  return told == default and not (value and #value <= 18 and string.find(value, '^%d+$'))
end

-- Which of `rows` have the key beside them: index -> key. The answer is nearly always none, which one call a chunk tells.
local function having(rows, suffix)
  local found = {}
  for first = 1, #rows, 500 do
    local keys = {}
    for i = first, math.min(first + 499, #rows) do keys[#keys + 1] = rows[i] .. suffix end
    if redis.call('EXISTS', unpack(keys)) > 0 then
      for i, key in ipairs(keys) do
        if redis.call('EXISTS', key) == 1 then found[first + i - 1] = key end
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

-- Why a job stays, if its row or logs are not what was archived.
local function differs(row, names, digest)
  local logs = redis.call('TYPE', row .. ':logs')['ok']
  if logs ~= 'list' and logs ~= 'none' then return 'damaged' end
  if redis.call('HLEN', row) ~= #names or dead_digest(row, names) ~= digest then return 'changed' end
end

-- Answers the ids that may go, their rows, the books of dependencies among them, and a flat list of id and reason for
-- the others:
--   gone (not dead), held (:lock), child (of a flow), parent (with open children), changed (died again, or not what was
--   archived), damaged (a row or logs of another type).
local function doomed(dead, base, at)
  expect(dead, 'zset')
  local flows, shapes, count = ARGV[at] == 'flow', {}, tonumber(ARGV[at + 1])
  local width, next_arg = count == 0 and 3 or 5, at + 2
  for shape = 1, count do
    local names = {}
    for i = 1, tonumber(ARGV[next_arg]) do names[i] = ARGV[next_arg + i] end
    shapes[shape] = names
    next_arg = next_arg + #names + 1
  end
  local ids, rows = {}, {}
  for i = next_arg, #ARGV, width do
    ids[#ids + 1] = ARGV[i]
    rows[#rows + 1] = base .. 'job:' .. ARGV[i]
  end
  local locked, waiting = having(rows, ':lock'), flows and having(rows, ':dependencies') or {}
  local go, go_rows, books, stay = {}, {}, {}, {}
  for first = 1, #ids, 500 do
    local scores = redis.call('ZMSCORE', dead, unpack(ids, first, math.min(first + 499, #ids)))
    for i, score in ipairs(scores) do
      local place = first + i - 1
      local row, arg = rows[place], next_arg + (place - 1) * width
      local why
      if not score then
        why = 'gone'
      elseif locked[place] then
        why = 'held'
      else
        local values = redis.pcall('HMGET', row, 'attempts', 'stalled', 'parent')
        if values.err then
          why = 'damaged'
        elseif values[3] then
          why = 'child'
        elseif waiting[place] and open_children(waiting[place], row) then
          why = 'parent'
        elseif not as_told(values[1], ARGV[arg + 1], '-1') or not as_told(values[2], ARGV[arg + 2], '0') then
          why = 'changed'
        elseif width == 5 then
          why = differs(row, shapes[tonumber(ARGV[arg + 3])], ARGV[arg + 4])
        end
      end
      if why then
        stay[#stay + 1] = ids[place]
        stay[#stay + 1] = why
      else
        go[#go + 1] = ids[place]
        go_rows[#go_rows + 1] = row
        if waiting[place] then books[#books + 1] = waiting[place] end
      end
    end
  end
  return go, go_rows, books, stay
end
