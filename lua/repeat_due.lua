-- The repeatables that are due by the server's clock. Changes nothing.
-- KEYS: repeat        ARGV: limit
-- Replies: names, longest due first.
--#include lib/check.lua
expect(KEYS[1], 'zset')
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', digits(now_ms()), 'LIMIT', 0, tonumber(ARGV[1]))
