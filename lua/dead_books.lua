#!lua flags=no-writes
-- Read dead flow parents, each whole at one moment, until the replies are `budget` bytes (at least one job).
-- KEYS: dead        ARGV: base, budget, ids ...
-- Replies: for each, in order: {digest of its books ('' none), row as name, value ..., log lines, dependencies (nil
--          none), processed, failed, unsuccessful (each as name, value ...)}; {} where one of them is of another type.
--          It may be shorter than the ids.
--#include lib/dead.lua
local base, budget = ARGV[1], tonumber(ARGV[2])
local out, size = {}, 0

local function digest_and_job(row)
  local parts, bytes = job_and_books(row)
  size = size + bytes
  return { books_digest(row), unpack(parts) }
end

for i = 3, #ARGV do
  local fine, found = pcall(digest_and_job, base .. 'job:' .. ARGV[i])
  out[#out + 1] = fine and found or {}
  if size >= budget then break end
end
return out
