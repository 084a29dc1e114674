-- Enqueue a job, flat or grouped, now or for later, unless a job holds its deduplication key; with it the job takes the key.
-- KEYS: row, dedup key
-- ARGV: base, id, payload, group or "", run at (unix ms) or "", delay ms or "" (neither: now), dedup id, the key's ttl in ms
--       ("": it stands until it is released), release (some of completed, dead, removed, with commas)
-- Replies: {1, id} admitted; {0, who holds the key}: nothing changed; {0, id} the row exists; EMQKIND; EMQDATA.
--#include lib/lanes.lua
local base, id, group = ARGV[1], ARGV[2], ARGV[4]
expect_job(id)
if group ~= '' and not is_id(group, 'GRP') then return redis.error_reply('EMQKIND not a GRP id') end
if expect(KEYS[2], 'string') then return { 0, redis.call('GET', KEYS[2]) } end
if redis.call('EXISTS', KEYS[1]) == 1 then return { 0, id } end
local later = ARGV[5] ~= '' or ARGV[6] ~= ''
local set = later and base .. 'schedule' or group ~= '' and lane_key(base, group) or base .. 'pending'
expect(set, 'zset')
if group ~= '' then expect_lane(base, group) end
expect_rights(KEYS[1], 'HSET', 'SET', 'ZADD')
local score = ARGV[5] ~= '' and ARGV[5] or later and digits(now_ms() + tonumber(ARGV[6])) or 0
redis.call('HSET', KEYS[1], 'state', later and 'scheduled' or 'pending', 'attempts', '0', 'payload', ARGV[3],
  'dedup', ARGV[7], 'dedup_release', ARGV[9])
if group ~= '' then redis.call('HSET', KEYS[1], 'group', group) end
redis.call('ZADD', set, score, id)
if group ~= '' and not later then ring_rule(base, group) end
if ARGV[8] == '' then
  redis.call('SET', KEYS[2], id)
else
  redis.call('SET', KEYS[2], id, 'PX', ARGV[8])
end
return { 1, id }
