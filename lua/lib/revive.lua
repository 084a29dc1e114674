--#include lib/leave.lua
-- A dead job waits again. A grouped one goes back to its lane, where lane consumers look (the reference puts it into
-- flat pending; this difference is deliberate).

-- Answers a reply that ends the script, or nil and the job's group where the job may be revived.
local function check_revive(base, id)
  local row = base .. 'job:' .. id
  if not expect(row, 'hash') then return -1 end
  expect(base .. 'dead', 'zset')
  if not redis.call('ZSCORE', base .. 'dead', id) then return redis.error_reply('EMQSTATE not dead') end
  expect(base .. 'pending', 'zset')
  expect_rights(row, 'HDEL', 'HSET', 'ZADD', 'ZREM')
  local group = redis.call('HGET', row, 'group')
  if group then expect_lane(base, group) end
  return nil, group
end

local function revive(base, id, group)
  local row = base .. 'job:' .. id
  redis.call('ZREM', base .. 'dead', id)
  redis.call('HDEL', row, 'last_error')
  redis.call('HSET', row, 'state', 'pending')
  if group then
    redis.call('ZADD', lane_key(base, group), 0, id)
    ring_rule(base, group)
  else
    redis.call('ZADD', base .. 'pending', 0, id)
  end
end
