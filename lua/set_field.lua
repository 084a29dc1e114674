-- Set a field of a hash of the queue, or take it away: a ceiling (meta), a lane's weight (gweight).
-- KEYS: the hash        ARGV: field (concurrency, max; a group), value ("" takes it away)
-- Replies: 1.
--#include lib/check.lua
expect(KEYS[1], 'hash')
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1
