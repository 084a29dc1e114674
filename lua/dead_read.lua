-- Read dead jobs, each as it stands at one moment, until the replies are `budget` bytes (at least one job).
-- KEYS: dead        ARGV: base, budget, ids ...
-- Replies: a list, in order, of {1 dead | 0 not dead any more, row as name, value ..., log lines}, or {-1} where row or
--          logs are of another type. It may be shorter than the ids: ask again for the rest. EMQDATA.
--#include lib/dead.lua
expect(KEYS[1], 'zset')
local base, budget = ARGV[1], tonumber(ARGV[2])
local out, size = {}, 0

local function fits(key, kind)
  local found = redis.call('TYPE', key)['ok']
  return found == kind or found == 'none'
end

for i = 3, #ARGV do
  local id = ARGV[i]
  local row = base .. 'job:' .. id
  if fits(row, 'hash') and fits(row .. ':logs', 'list') then
    local dead = redis.call('ZSCORE', KEYS[1], id) and 1 or 0
    local fields = dead == 1 and redis.call('HGETALL', row) or {}
    local logs = dead == 1 and redis.call('LRANGE', row .. ':logs', 0, -1) or {}
    for _, text in ipairs(fields) do size = size + #text end
    for _, text in ipairs(logs) do size = size + #text end
    out[#out + 1] = { dead, fields, logs }
  else
    out[#out + 1] = { -1 }
  end
  if size >= budget then break end
end
return out
