#!lua flags=allow-oom
-- Give up a lease. State and token stay, so that the token is not used again.
-- KEYS: lease        ARGV: state, token
-- Replies: 1 given up, 0 it was not ours any more. EMQDATA.
-- Flags: one-key
--#include lib/fence.lua
local lease = read_lease(KEYS[1])
if lease.state ~= ARGV[1] or lease.token ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'until', '0')
return 1
