-- Resume a queue.
-- KEYS: meta
-- Replies: 1.
--#include lib/check.lua
expect(KEYS[1], 'hash')
redis.call('HDEL', KEYS[1], 'paused')
return 1
