-- Cancel a repeatable, whether it goes by a period or by the calendar.
-- KEYS: repeat, repeat:<name>, our own `repeat:<name>`, our own `cron`        ARGV: base, name
-- Replies: 1; 0 it was not listed (a hash without an entry, which fires never, goes all the same).
--#include lib/repeat.lua
local base, name = ARGV[1], ARGV[2]
expect(KEYS[1], 'zset')
expect_rights(KEYS[1], 'UNLINK', 'ZREM')
local more = expect(KEYS[3], 'hash')
if more then expect_ours(base, name) end
local listed = redis.call('ZREM', KEYS[1], name)
redis.call('UNLINK', KEYS[2])
if more then
  listed = math.max(listed, redis.call('ZREM', KEYS[4], name))
  redis.call('UNLINK', KEYS[3])
end
mark_repeatable(base, name, nil)
return listed
