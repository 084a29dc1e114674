-- A job in hand goes back to the schedule, without an attempt; one that is scheduled already moves there.
-- KEYS: active, row, schedule        ARGV: base, id, token, delay ms ("" with an instant), instant (unix ms, "" with a
--       delay), "release" (the claimer's locks go too) or ""
-- Replies: 1; EMQSTALE wrong token or no row; EMQSTATE it is not in hand (the reference also takes a job that waits or is
--          dead, which then stands in two sets); EMQKIND.
--#include lib/leave.lua
local base, id, row = ARGV[1], ARGV[2], KEYS[2]
expect_job(id)
if not expect(row, 'hash') then return redis.error_reply('EMQSTALE job gone') end
local values = row_fields(row, 'attempts', 'group')
if attempts_of(row, values[1]) ~= tonumber(ARGV[3]) then return redis.error_reply('EMQSTALE delay token mismatch') end
expect_leave(base, values[2])
if not redis.call('ZSCORE', KEYS[1], id) and not redis.call('ZSCORE', KEYS[3], id) then
  return redis.error_reply('EMQSTATE job is not in hand')
end
expect_rights(row, 'HDEL', 'HSET', 'UNLINK', 'ZADD')
local at = ARGV[5] ~= '' and ARGV[5] or digits(now_ms() + tonumber(ARGV[4]))
leave_claim(base, id, values[2])
if ARGV[6] == 'release' then
  redis.call('UNLINK', row .. ':lock')
  redis.call('HDEL', row, 'lock')
end
redis.call('HSET', row, 'state', 'scheduled')
redis.call('ZADD', KEYS[3], at, id)
return 1
