-- Complete a job: it leaves active (or, its lease reaped, wherever it waits), its row goes.
-- KEYS: active, row, completed counter [, stream]
-- ARGV: base, id, token [, "release" (the claimer's :lock goes too, and an entry in the dead set) or "" [, node, then the
--       record's names and values]]
-- Replies: 1; 0 no row; EMQSTALE wrong token; EMQSTATE it has a flow parent (to settle with it is its own worker's part).
--          With a stream, the record is added with it, or neither happens: EMQDATA, NOPERM.
--#include lib/leave.lua
--#include lib/record.lua
local base, id, row, stream = ARGV[1], ARGV[2], KEYS[2], KEYS[4]
if not expect(row, 'hash') then return 0 end
local values = row_fields(row, 'attempts', 'group', 'parent')
if attempts_of(row, values[1]) ~= tonumber(ARGV[3]) then
  return redis.error_reply('EMQSTALE complete token mismatch')
end
if values[3] then return redis.error_reply('EMQSTATE job has a flow parent') end
expect_leave(base, values[2])
expect(KEYS[3], 'hash')
expect_rights(row, 'HINCRBY', 'UNLINK')
whole(redis.call('HGET', KEYS[3], 'count') or '0', KEYS[3] .. ' count')
local record = stream and settle_record(stream, now_ms(), tonumber(ARGV[5]), { unpack(ARGV, 6) })
leave_claim(base, id, values[2])
redis.call('UNLINK', row)
redis.call('HINCRBY', KEYS[3], 'count', 1)
if record then redis.call(unpack(record)) end
if ARGV[4] == 'release' then
  redis.call('UNLINK', row .. ':lock')
  redis.call('ZREM', base .. 'dead', id)
end
return 1
