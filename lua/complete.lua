-- Complete a job: it leaves active (or, its lease reaped, wherever it waits), its row goes.
-- KEYS: active, row, completed counter        ARGV: base, id, token
-- Replies: 1; 0 no row; EMQSTALE wrong token; EMQSTATE it has a flow parent (to settle with it is its own worker's part).
--#include lib/leave.lua
local base, id, row = ARGV[1], ARGV[2], KEYS[2]
if not expect(row, 'hash') then return 0 end
local values = row_fields(row, 'attempts', 'group', 'parent')
if attempts_of(row, values[1]) ~= tonumber(ARGV[3]) then
  return redis.error_reply('EMQSTALE complete token mismatch')
end
if values[3] then return redis.error_reply('EMQSTATE job has a flow parent') end
expect_leave(base, values[2])
expect(KEYS[3], 'hash')
whole(redis.call('HGET', KEYS[3], 'count') or '0', KEYS[3] .. ' count')
leave_everywhere(base, id, values[2])
redis.call('UNLINK', row)
redis.call('HINCRBY', KEYS[3], 'count', 1)
return 1
