#!lua flags=no-writes
-- What identifies each of some dead jobs.
-- KEYS: dead        ARGV: base, ids ...
-- Replies: attempts and stalls of each id in turn, '' where its row says none (or is no hash). EMQDATA.
--#include lib/check.lua
expect(KEYS[1], 'zset')
local out = {}
for i = 2, #ARGV do
  local values = redis.pcall('HMGET', ARGV[1] .. 'job:' .. ARGV[i], 'attempts', 'stalled')
  out[#out + 1] = values[1] or ''
  out[#out + 1] = values[2] or ''
end
return out
