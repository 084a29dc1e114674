-- Set a job's progress and publish it.
-- KEYS: row        ARGV: id, progress, events channel
-- Replies: 1; -1 no row. A missing right on the channel is refused before the row is written.
--#include lib/check.lua
if not expect(KEYS[1], 'hash') then return -1 end
local event = cjson.encode({ event = 'progress', job = ARGV[1], progress = ARGV[2] })
if redis.acl_check_cmd and not redis.acl_check_cmd('PUBLISH', ARGV[3], event) then
  return redis.error_reply('NOPERM this user may not publish to ' .. ARGV[3])
end
expect_rights(KEYS[1], 'HSET')
redis.call('HSET', KEYS[1], 'progress', ARGV[2])
redis.call('PUBLISH', ARGV[3], event)
return 1
