-- A keeper beside a worker takes its marks off a job: those that hold its token.
-- KEYS: row, lock        ARGV: token
-- Replies: how many of the two were taken off. EMQDATA, NOPERM.
--#include lib/lock.lua
expect(KEYS[1], 'hash')
expect_marks(KEYS[1], KEYS[2])
local taken = 0
if redis.call('GET', KEYS[2]) == ARGV[1] then taken = taken + redis.call('UNLINK', KEYS[2]) end
if redis.call('HGET', KEYS[1], 'lock') == ARGV[1] then taken = taken + redis.call('HDEL', KEYS[1], 'lock') end
return taken
