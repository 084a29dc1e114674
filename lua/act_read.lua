-- Read jobs that an act laid aside, whole, until the replies are `budget` bytes (at least one job). Changes nothing.
-- KEYS: acted (names the slot)        ARGV: where they are laid (a prefix), budget, ids ...
-- Replies: for each, in order: {row as name, value ..., log lines, dependencies (nil none), processed, failed,
--          unsuccessful (each as name, value ...), the place that it had (nil: the dead set)}; an empty row: it is not there. It may be shorter than the ids.
--#include lib/dead.lua
local grave, budget = ARGV[1], tonumber(ARGV[2])
local out, size = {}, 0
for i = 3, #ARGV do
  local found, bytes = job_and_books(grave .. ARGV[i])
  found[#found + 1] = redis.call('GET', grave .. ARGV[i] .. ':place')
  size = size + bytes
  out[#out + 1] = found
  if size >= budget then break end
end
return out
