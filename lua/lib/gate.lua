--#include lib/check.lua
-- The gate before a claim: a paused queue gives nothing; at the concurrency ceiling it refuses.

-- How many of `count` may be claimed now: 0 where the queue is paused. EMQRATE where the ceiling is reached.
local function open_places(base, count)
  expect(base .. 'meta', 'hash')
  local meta = redis.call('HMGET', base .. 'meta', 'paused', 'concurrency')
  if meta[1] then return 0 end
  local ceiling = meta[2] and whole(meta[2], base .. 'meta concurrency') or 0
  if ceiling <= 0 then return count end
  local room = ceiling - redis.call('ZCARD', base .. 'active')
  if room <= 0 then refuse('EMQRATE', 'concurrency ceiling ' .. digits(ceiling) .. ' reached') end
  return math.min(count, room)
end

-- Refuses a flow child for a claimer that can't settle with its parent.
local function expect_no_parent(id, parent, flows)
  if parent and flows == 'refuse' then
    refuse('EMQSTATE', 'job ' .. id .. ' has a flow parent')
  end
end
