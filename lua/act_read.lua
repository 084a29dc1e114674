-- Read jobs that an act laid aside, whole, until the replies are `budget` bytes (at least one job). Changes nothing.
-- KEYS: acted (names the slot)        ARGV: where they are laid (a prefix), budget, ids ...
-- Replies: for each, in order: {row as name, value ..., log lines, dependencies (nil none), processed, failed,
--          unsuccessful (each as name, value ...)}; an empty row: it is not there. It may be shorter than the ids.
local grave, budget = ARGV[1], tonumber(ARGV[2])
local out, size = {}, 0
for i = 3, #ARGV do
  local key = grave .. ARGV[i]
  local found = {
    redis.call('HGETALL', key), redis.call('LRANGE', key .. ':logs', 0, -1), redis.call('GET', key .. ':dependencies'),
    redis.call('HGETALL', key .. ':processed'), redis.call('HGETALL', key .. ':failed'),
    redis.call('HGETALL', key .. ':unsuccessful'),
  }
  for _, part in ipairs(found) do
    for _, text in ipairs(type(part) == 'table' and part or {}) do size = size + #text end
  end
  out[#out + 1] = found
  if size >= budget then break end
end
return out
