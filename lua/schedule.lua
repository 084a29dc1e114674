-- Schedule a job, flat or grouped, for an instant or after a delay of the server's clock.
-- KEYS: row, schedule        ARGV: id, payload, group or "", run at (unix ms) or "", delay ms or ""
-- Replies: 1 admitted; 0 the row exists, nothing changed; EMQKIND not a JOB or GRP id.
--#include lib/check.lua
local id, group = ARGV[1], ARGV[3]
expect_job(id)
if group ~= '' and not is_id(group, 'GRP') then return redis.error_reply('EMQKIND not a GRP id') end
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
expect(KEYS[2], 'zset')
expect_rights(KEYS[2], 'HSET', 'ZADD')
local due = ARGV[4] ~= '' and tonumber(ARGV[4]) or now_ms() + tonumber(ARGV[5])
redis.call('HSET', KEYS[1], 'state', 'scheduled', 'attempts', '0', 'payload', ARGV[2])
if group ~= '' then redis.call('HSET', KEYS[1], 'group', group) end
redis.call('ZADD', KEYS[2], digits(due), id)
return 1
