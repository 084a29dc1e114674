#!lua flags=allow-oom
-- Forget the exemptions of jobs that are gone.
-- KEYS: lease, exempt        ARGV: state, token, run id (lib/fence); base; ids ...
-- Replies: how many were forgotten. EMQFENCE, EMQDATA.
--#include lib/fence.lua
check_fence(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
expect(KEYS[2], 'hash')
local gone = 0
for i = 5, #ARGV do
  if redis.call('EXISTS', ARGV[4] .. 'job:' .. ARGV[i]) == 0 then
    gone = gone + redis.call('HDEL', KEYS[2], ARGV[i])
  end
end
return gone
