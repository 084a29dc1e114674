#!lua flags=allow-oom
-- Forget what was set aside and is not where it stood any more.
-- KEYS: aside        ARGV: base, then members and the set of each
-- Replies: how many were forgotten. EMQDATA.
--#include lib/check.lua
local base, gone = ARGV[1], 0
expect(KEYS[1], 'hash')
expect_rights(KEYS[1], 'HDEL')
for i = 2, #ARGV, 2 do
  if redis.pcall('ZSCORE', base .. ARGV[i + 1], ARGV[i]) == false then gone = gone + redis.call('HDEL', KEYS[1], ARGV[i]) end
end
return gone
