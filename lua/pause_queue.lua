-- Pause a queue: nothing is claimed from it.
-- KEYS: meta
-- Replies: 1.
--#include lib/check.lua
expect(KEYS[1], 'hash')
redis.call('HSET', KEYS[1], 'paused', '1')
return 1
