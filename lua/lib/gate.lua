--#include lib/check.lua
-- The gate before a claim: a paused queue gives nothing; at the concurrency ceiling, or at the rate, it refuses.

local RATE_WINDOW_MS = 1000 -- `max` is so many claims a second: the wire has no window of its own
local window = nil -- {key, new}: what is claimed now counts in it

-- How many of `count` may be claimed now: 0 where the queue is paused. EMQRATE where the ceiling or the rate is reached. What
-- was claimed then is told to `count_claims`.
local function open_places(base, count)
  expect(base .. 'meta', 'hash')
  local meta = redis.call('HMGET', base .. 'meta', 'paused', 'concurrency', 'max')
  if meta[1] then return 0 end
  local ceiling = meta[2] and whole(meta[2], base .. 'meta concurrency') or 0
  if ceiling > 0 then
    local room = ceiling - redis.call('ZCARD', base .. 'active')
    if room <= 0 then refuse('EMQRATE', 'concurrency ceiling ' .. digits(ceiling) .. ' reached') end
    count = math.min(count, room)
  end
  -- A rate that is no number is none (`doctor` names it): nothing of ours asked for it before, and no queue stops for it.
  local rate = meta[3] and string.find(meta[3], '^%d+$') and #meta[3] <= 15 and tonumber(meta[3]) or 0
  if rate <= 0 then return count end
  local key = base .. 'limiter'
  expect(key, 'string')
  expect_rights(key, 'INCRBY', 'SET')
  local left, taken = redis.call('PTTL', key), tonumber(redis.call('GET', key) or '')
  -- A limiter that does not expire, or is no number, limits nobody: a window of ours takes its place.
  window = { key = key, new = left <= 0 or not taken }
  if window.new then return math.min(count, rate) end
  if taken >= rate then
    refuse('EMQRATE', 'rate of ' .. digits(rate) .. ' a second reached, open in ' .. digits(left) .. ' ms')
  end
  return math.min(count, math.floor(rate - taken))
end

-- Counts claims in the window of the rate, if there is one. After the last check.
local function count_claims(number)
  if not window or number == 0 then return end
  if window.new then
    redis.call('SET', window.key, digits(number), 'PX', RATE_WINDOW_MS)
  else
    redis.call('INCRBY', window.key, digits(number))
  end
end
