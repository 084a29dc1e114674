--#include lib/dead.lua
--#include lib/flow.lua
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

local HEAD = { 'attempts', 'stalled', 'parent', 'lock', 'dedup', 'dedup_release', 'parent_queue', 'parent_policy', 'last_error' }

-- The values of `names` in a row, false for each that is not there; an error reply for a key of another type.
local function values_of(row, names)
  if #names <= 500 then return redis.pcall('HMGET', row, unpack(names)) end
  local out = {}
  for first = 1, #names, 500 do
    local values = redis.pcall('HMGET', row, unpack(names, first, math.min(first + 499, #names)))
    if values.err then return values end
    for i = 1, #values do out[#out + 1] = values[i] end
  end
  return out
end

-- Why a job stays, if its row or logs are not what was archived. `values`: of HEAD and of the names that it had then;
-- `logged`: the key of its logs, where it has some.
local function differs(row, values, logged, digest)
  local logs = logged and redis.pcall('LRANGE', logged, 0, -1) or {}
  if logs.err then return 'damaged' end
  if redis.call('HLEN', row) ~= #values - #HEAD then return 'changed' end
  if dead_digest(values, #HEAD + 1, logs) ~= digest then return 'changed' end
end

-- Answers the ids that may go, their rows, the books among them, a flat list of id and reason for the others, {id, dedup,
-- dedup_release} of those that go and have a deduplication key, and {id, parent, error} of the flow children that go. The
-- reasons:
--   gone (not dead), held (:lock, or the row's field lock), parent (with open children), changed (died again, or not what
--   was archived), damaged (a row, logs or books of another type, or its parent's).
local function doomed(dead, base, at)
  expect(dead, 'zset')
  local flows, shapes, count = ARGV[at] == 'flow', {}, tonumber(ARGV[at + 1])
  local width, next_arg = (count == 0 and 3 or 5) + (flows and 1 or 0), at + 2
  for shape = 1, count do
    local names = { unpack(HEAD) }
    local size = tonumber(ARGV[next_arg])
    for i = 1, size do names[#HEAD + i] = ARGV[next_arg + i] end
    shapes[shape] = names
    next_arg = next_arg + size + 1
  end
  local ids, rows = {}, {}
  for i = next_arg, #ARGV, width do
    ids[#ids + 1] = ARGV[i]
    rows[#rows + 1] = base .. 'job:' .. ARGV[i]
  end
  local locked, parents = having(rows, ':lock'), flows and parents_among(rows) or {}
  local logged = count > 0 and having(rows, ':logs') or {}
  local go, go_rows, books, stay, dedups, children = {}, {}, {}, {}, {}, {}
  for first = 1, #ids, 500 do
    local scores = redis.call('ZMSCORE', dead, unpack(ids, first, math.min(first + 499, #ids)))
    for i, score in ipairs(scores) do
      local place = first + i - 1
      local row, arg = rows[place], next_arg + (place - 1) * width
      local why, values
      if not score then
        why = 'gone'
      elseif locked[place] then
        why = 'held'
      else
        values = values_of(row, count > 0 and shapes[tonumber(ARGV[arg + 3])] or HEAD)
        if values.err then
          why = 'damaged'
        elseif values[4] then
          why = 'held'
        elseif parents[place] and open_children(row) then
          why = 'parent'
        elseif not as_told(values[1], ARGV[arg + 1], '-1') or not as_told(values[2], ARGV[arg + 2], '0') then
          why = 'changed'
        else
          why = count > 0 and differs(row, values, logged[place], ARGV[arg + 4])
            or flows and books_differ(row, parents[place], ARGV[arg + width - 1]) or nil
        end
      end
      local parent
      if not why and values[3] then
        parent = parent_of(base, values[3], values[7], values[8])
        if not pcall(expect_flow, base, parent) then why = 'damaged' end
      end
      if why then
        stay[#stay + 1] = ids[place]
        stay[#stay + 1] = why
      else
        go[#go + 1] = ids[place]
        go_rows[#go_rows + 1] = row
        if values[5] then dedups[#dedups + 1] = { ids[place], values[5], values[6] } end
        if parent then children[#children + 1] = { ids[place], parent, values[9] or 'trimmed' } end
        if parents[place] then
          for _, book in ipairs(BOOKS) do books[#books + 1] = row .. book end
        end
      end
    end
  end
  return go, go_rows, books, stay, dedups, children
end
