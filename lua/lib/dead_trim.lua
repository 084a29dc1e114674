--#include lib/dead.lua
-- Which dead jobs a trim may delete: all the checks, none of the writes.
--
-- A call's tail, from ARGV[at] on: "flow" where some of the jobs may be flow parents, "flat" where none is; number of
-- shapes. 0: then for each job its id, attempts ("-1" where the row says none) and stalls. Else for each shape how many
-- names and the names of a row's fields; then for each job its id, attempts, stalls, the number of its shape, and its
-- digest. With "flow" behind each job the digest of its books ('' none; '*' whatever they are).

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

local BOOKS = { ':dependencies', ':processed', ':failed', ':unsuccessful' }

-- Which of `rows` have any book of a flow parent: index -> true.
local function parents_among(rows)
  local found = {}
  for _, book in ipairs(BOOKS) do
    for i in pairs(having(rows, book)) do found[i] = true end
  end
  return found
end

-- Whether a flow parent still waits for children that would settle with it.
local function open_children(row)
  local waits = redis.pcall('GET', row .. ':dependencies')
  if waits == false then return false end
  local failed = redis.pcall('HLEN', row .. ':failed')
  if type(waits) ~= 'string' or type(failed) ~= 'number' then return true end
  return (tonumber(waits) or 0) > failed
end

-- Why a flow parent stays, if its books are not what the caller has. `parent`: it has some.
local function books_differ(row, parent, digest)
  if digest == '*' then return nil end
  if not parent then return digest ~= '' and 'changed' or nil end
  local fine, found = pcall(books_digest, row)
  if not fine then return 'damaged' end
  return found ~= digest and 'changed' or nil
end

-- Why a job stays, if its row or logs are not what was archived.
local function differs(row, names, digest)
  local logs = redis.call('TYPE', row .. ':logs')['ok']
  if logs ~= 'list' and logs ~= 'none' then return 'damaged' end
  if redis.call('HLEN', row) ~= #names or dead_digest(row, names) ~= digest then return 'changed' end
end

-- Answers the ids that may go, their rows, the books among them, and a flat list of id and reason for the others:
--   gone (not dead), held (:lock), child (of a flow), parent (with open children), changed (died again, or not what was
--   archived), damaged (a row, logs or books of another type).
local function doomed(dead, base, at)
  expect(dead, 'zset')
  local flows, shapes, count = ARGV[at] == 'flow', {}, tonumber(ARGV[at + 1])
  local width, next_arg = (count == 0 and 3 or 5) + (flows and 1 or 0), at + 2
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
  local locked, parents = having(rows, ':lock'), flows and parents_among(rows) or {}
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
        elseif parents[place] and open_children(row) then
          why = 'parent'
        elseif not as_told(values[1], ARGV[arg + 1], '-1') or not as_told(values[2], ARGV[arg + 2], '0') then
          why = 'changed'
        else
          why = count > 0 and differs(row, shapes[tonumber(ARGV[arg + 3])], ARGV[arg + 4])
            or flows and books_differ(row, parents[place], ARGV[arg + width - 1]) or nil
        end
      end
      if why then
        stay[#stay + 1] = ids[place]
        stay[#stay + 1] = why
      else
        go[#go + 1] = ids[place]
        go_rows[#go_rows + 1] = row
        if parents[place] then
          for _, book in ipairs(BOOKS) do books[#books + 1] = row .. book end
        end
      end
    end
  end
  return go, go_rows, books, stay
end
