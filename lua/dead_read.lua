-- Read dead jobs, each as it stands at one moment, until the replies are `budget` bytes (at least one job).
-- KEYS: dead        ARGV: base, budget, ids ...
-- Replies: a list, in order, of {1 dead | 0 not dead any more, row as name, value ..., log lines}, or {-1} where row or
--          logs are of another type. It may be shorter than the ids: ask again for the rest. EMQDATA.
--#include lib/dead.lua
expect(KEYS[1], 'zset')
local base, budget = ARGV[1], tonumber(ARGV[2])
local out, size, CHUNK, NOTHING = {}, 0, 500, {}

for first = 3, #ARGV, CHUNK do
  local rows = {}
  for i = first, math.min(first + CHUNK - 1, #ARGV) do rows[#rows + 1] = base .. 'job:' .. ARGV[i] end
  local scores = redis.call('ZMSCORE', KEYS[1], unpack(ARGV, first, first + #rows - 1))
  local logged = having(rows, ':logs')
  for i, row in ipairs(rows) do
    local fields, logs = NOTHING, NOTHING
    if scores[i] then
      fields = redis.pcall('HGETALL', row)
      if logged[i] then logs = redis.pcall('LRANGE', logged[i], 0, -1) end
    end
    if fields.err or logs.err then
      out[#out + 1] = { -1 }
    else
      for _, text in ipairs(fields) do size = size + #text end
      for _, text in ipairs(logs) do size = size + #text end
      out[#out + 1] = { scores[i] and 1 or 0, fields, logs }
    end
    if size >= budget then return out end
  end
end
return out
