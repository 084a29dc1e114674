-- Retry a job after an error: back to the schedule, or to the dead set at its last attempt.
-- KEYS: active, row, schedule, dead, failed counter        ARGV: base, id, token, delay ms, max attempts, error
-- Replies: "scheduled" or "dead"; EMQSTALE wrong token or no row; EMQSTATE it has a flow parent and would die.
--#include lib/leave.lua
local base, id, row = ARGV[1], ARGV[2], KEYS[2]
if not expect(row, 'hash') then return redis.error_reply('EMQSTALE job gone') end
local values = row_fields(row, 'attempts', 'group', 'parent')
local attempts = attempts_of(row, values[1])
if attempts ~= tonumber(ARGV[3]) then return redis.error_reply('EMQSTALE retry token mismatch') end
local dies = attempts >= tonumber(ARGV[5])
if dies and values[3] then return redis.error_reply('EMQSTATE job has a flow parent') end
expect_leave(base, values[2])
expect(KEYS[5], 'hash')
whole(redis.call('HGET', KEYS[5], 'count') or '0', KEYS[5] .. ' count')
leave_everywhere(base, id, values[2])
if dies then
  redis.call('HSET', row, 'last_error', ARGV[6], 'state', 'dead')
  redis.call('ZADD', KEYS[4], 0, id)
  redis.call('HINCRBY', KEYS[5], 'count', 1)
  return 'dead'
end
redis.call('HSET', row, 'last_error', ARGV[6], 'state', 'scheduled')
redis.call('ZADD', KEYS[3], digits(now_ms() + tonumber(ARGV[4])), id)
return 'scheduled'
