--#include lib/check.lua
-- A dead job as it stands: its row, its log lines, and a digest of both; and its books as a flow parent.

-- Calls `visit(value)` for the value of each of `names` in a row, in that order (false where it is not there).
local function each_value(row, names, visit)
  for start = 1, #names, 500 do
    local values = redis.call('HMGET', row, unpack(names, start, math.min(start + 499, #names)))
    for i = 1, #values do visit(values[i]) end
  end
end

-- SHA-1 over the values of `names` (in the caller's order: Lua would sort by the server's locale) and the log lines,
-- each led by its length; a field that is not there is "-", and "*" stands between the two. Whoever compares it also
-- compares the number of fields, so that none was added.
local function dead_digest(row, names)
  local parts = {}
  each_value(row, names, function(value)
    parts[#parts + 1] = value and (#value .. ':' .. value) or '-'
  end)
  parts[#parts + 1] = '*'
  for _, line in ipairs(redis.call('LRANGE', row .. ':logs', 0, -1)) do parts[#parts + 1] = #line .. ':' .. line end
  return redis.sha1hex(table.concat(parts))
end

local HASH_BOOKS = { ':processed', ':failed', ':unsuccessful' }

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
