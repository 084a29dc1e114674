--#include lib/check.lua
-- A dead job as it stands: its row, its log lines, and a digest of both; and its books as a flow parent.

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

-- SHA-1 over `values` (those of a row's fields in the caller's order: Lua would sort by the server's locale; false for
-- one that is not there) from place `first` on, and the log lines, each led by its length; a field that is not there is
-- "-", and "*" stands between the two. Whoever compares it also compares the number of fields, so that none was added.
local function dead_digest(values, first, logs)
  local parts = {}
  for i = first, #values do
    local value = values[i]
    parts[#parts + 1] = value and (#value .. ':' .. value) or '-'
  end
  parts[#parts + 1] = '*'
  for _, line in ipairs(logs) do parts[#parts + 1] = #line .. ':' .. line end
  return redis.sha1hex(table.concat(parts))
end

local HASH_BOOKS = { ':processed', ':failed', ':unsuccessful' }

-- A job whole, and its bytes: {row as name, value ..., log lines, dependencies (false none), processed, failed,
-- unsuccessful (each as name, value ...)}.
local function job_and_books(row)
  local parts, size = {
    redis.call('HGETALL', row), redis.call('LRANGE', row .. ':logs', 0, -1), redis.call('GET', row .. ':dependencies'),
  }, 0
  for _, book in ipairs(HASH_BOOKS) do parts[#parts + 1] = redis.call('HGETALL', row .. book) end
  for _, part in ipairs(parts) do
    for _, text in ipairs(type(part) == 'table' and part or {}) do size = size + #text end
  end
  return parts, size
end

-- A digest of a flow parent's books, '' where there are none. Only for another script of this server to compare: it is
-- sorted by the server's locale.
local function books_digest(row)
  local parts = {}
  local waits = redis.call('GET', row .. ':dependencies')
  if waits then parts[1] = redis.sha1hex(waits) end
  for _, book in ipairs(HASH_BOOKS) do
    local flat = redis.call('HGETALL', row .. book)
    for i = 1, #flat, 2 do
      parts[#parts + 1] = redis.sha1hex(book .. #flat[i] .. ':' .. flat[i] .. flat[i + 1])
    end
  end
  if #parts == 0 then return '' end
  table.sort(parts)
  return redis.sha1hex((waits and '1' or '0') .. table.concat(parts))
end
