#!lua flags=no-writes
-- How many scheduled jobs are due, and the first of them.
-- KEYS: schedule        ARGV: how many ids (0 without)
-- Replies: {due, ids ...}; EMQDATA.
--#include lib/check.lua
expect(KEYS[1], 'zset')
local now = now_ms()
local found = { redis.call('ZCOUNT', KEYS[1], digits(MIN_MS), now) }
local limit = tonumber(ARGV[1] or '0')
if limit > 0 then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], digits(MIN_MS), now, 'LIMIT', 0, limit)) do
    found[#found + 1] = id
  end
end
return found
