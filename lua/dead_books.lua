#!lua flags=no-writes
-- Read dead flow parents, each whole at one moment, until the replies are `budget` bytes (at least one job).
-- KEYS: dead        ARGV: base, budget, ids ...
-- Replies: for each, in order: {digest of its books ('' none), row as name, value ..., log lines, dependencies (nil
--          none), processed, failed, unsuccessful (each as name, value ...)}; {} where one of them is of another type.
--          It may be shorter than the ids.
--#include lib/dead.lua
local base, budget = ARGV[1], tonumber(ARGV[2])
local out, size = {}, 0

local function job_and_books(row)
  local found = {
    books_digest(row), redis.call('HGETALL', row), redis.call('LRANGE', row .. ':logs', 0, -1),
    redis.call('GET', row .. ':dependencies'),
  }
  for i, book in ipairs(HASH_BOOKS) do found[4 + i] = redis.call('HGETALL', row .. book) end
  for i = 2, 7 do
    for _, text in ipairs(type(found[i]) == 'table' and found[i] or {}) do size = size + #text end
  end
  return found
end

for i = 3, #ARGV do
  local fine, found = pcall(job_and_books, base .. 'job:' .. ARGV[i])
  out[#out + 1] = fine and found or {}
  if size >= budget then break end
end
return out
