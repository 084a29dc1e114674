-- As keep, by the module's EMQ.EXTEND, which also stamps each row with this life of the server.
-- KEYS: active        ARGV: base, lease ms, then id, token pairs
-- Replies: the ids whose lease is gone, in order. A longer lease is never shortened. Whatever else the module refuses is
--          refused here, before anything is written.
--#include lib/check.lua
local base, lease = ARGV[1], ARGV[2]
expect(KEYS[1], 'zset')
local deadline = now_ms() + tonumber(lease)
local lost = {}
for i = 3, #ARGV, 2 do
  local id, row = ARGV[i], base .. 'job:' .. ARGV[i]
  local score = redis.call('ZSCORE', KEYS[1], id)
  if not score or not has_token(row, ARGV[i + 1]) then
    lost[#lost + 1] = id
  else
    -- One command for all checks of the module: what it refuses here, a lease or keys that it does not take, it refuses for
    -- the first job already.
    if tonumber(score) <= deadline then redis.call('EMQ.EXTEND', 2, KEYS[1], row, id, ARGV[i + 1], lease) end
    redis.call('SET', row .. ':lock', '1', 'PX', digits(2 * tonumber(lease)))
  end
end
return lost
