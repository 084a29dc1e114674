-- One occurrence of a repeatable that is due: a fresh job with its template, and the next instant, a period from now.
-- KEYS: repeat, repeat:<name>, row, pending        ARGV: name, id of the fresh job
-- Replies: the next instant (unix ms); 0 not due, or somebody else advanced it; -1 no such repeatable; EMQKIND.
-- Occurrences that were missed altogether are not made up for.
--#include lib/check.lua
expect_job(ARGV[2])
expect(KEYS[1], 'zset')
expect(KEYS[4], 'zset')
expect_rights(KEYS[4], 'HSET', 'ZADD')
local due = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not due or not expect(KEYS[2], 'hash') then return -1 end
local values = row_fields(KEYS[2], 'every_ms', 'template')
local every = whole(values[1], KEYS[2] .. ' every_ms')
if every <= 0 then refuse('EMQDATA', KEYS[2] .. ' every_ms is not positive') end
due = expect_instant(due, KEYS[1] .. ' ' .. ARGV[1])
local now = now_ms()
if due > now then return 0 end
if redis.call('EXISTS', KEYS[3]) == 1 then refuse('EMQSTATE', 'job ' .. ARGV[2] .. ' exists') end
local following = now + every
redis.call('HSET', KEYS[3], 'state', 'pending', 'attempts', '0', 'payload', values[2] or '')
redis.call('ZADD', KEYS[4], 0, ARGV[2])
redis.call('ZADD', KEYS[1], digits(following), ARGV[1])
return following
