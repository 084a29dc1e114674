-- Enqueue a flat job.
-- KEYS: row, pending        ARGV: id, payload
-- Replies: 1 admitted; 0 the row exists, nothing changed; EMQKIND not a JOB id.
--#include lib/check.lua
expect_job(ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
expect(KEYS[2], 'zset')
expect_rights(KEYS[2], 'HSET', 'ZADD')
redis.call('HSET', KEYS[1], 'state', 'pending', 'attempts', '0', 'payload', ARGV[2])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return 1
