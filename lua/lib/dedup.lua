--#include lib/check.lua
-- A job's deduplication key, `de:<id>`: the row of one that was enqueued with it says which (`dedup`) and at what it is
-- released (`dedup_release`: some of completed, dead, removed). Called with the writes; what is not the job's key stays.

local function release_dedup(base, job, moment, id, moments)
  if not id or not moments or not string.find(moments, moment, 1, true) then return end
  local key = base .. 'de:' .. id
  if redis.pcall('GET', key) == job then redis.pcall('UNLINK', key) end
end

-- The same by the job's row, as long as it is there.
local function release_dedup_of(base, job, moment)
  local values = redis.pcall('HMGET', base .. 'job:' .. job, 'dedup', 'dedup_release')
  if not values.err then release_dedup(base, job, moment, values[1], values[2]) end
end
