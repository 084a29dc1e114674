-- Complete a job: it leaves active (or, its lease reaped, wherever it waits), its row goes, and with it its books as a flow
-- parent. A flow child's parent hears of it, in this step or by the outbox.
-- KEYS: active, row, completed counter [, stream]
-- ARGV: base, id, token, "release" (the claimer's :lock goes too, and an entry in the dead set) or "", "result" or "", the
--       result for a parent (without one it gets the child's id) [, node, then the record's names and values]
-- Replies: 1; 0 no row; EMQSTALE wrong token. With a stream, the record is added with it, or neither happens: EMQDATA,
--          NOPERM.
--#include lib/leave.lua
--#include lib/flow.lua
--#include lib/record.lua
--#include lib/counter.lua
--#include lib/dedup.lua
local base, id, row, stream = ARGV[1], ARGV[2], KEYS[2], KEYS[4]
if not expect(row, 'hash') then return 0 end
local values = row_fields(row, 'attempts', 'group', 'parent', 'parent_queue', 'parent_policy', 'dedup', 'dedup_release')
if attempts_of(row, values[1]) ~= tonumber(ARGV[3]) then
  return redis.error_reply('EMQSTALE complete token mismatch')
end
local parent = parent_of(base, values[3], values[4], values[5])
expect_leave(base, values[2])
expect_flow(base, parent)
expect_rights(row, 'HINCRBY', 'UNLINK')
local counts = countable(base, string.sub(KEYS[3], #base + 1))
local record = stream and settle_record(stream, now_ms(), tonumber(ARGV[7]), { unpack(ARGV, 8) })
leave_claim(base, id, values[2])
release_dedup(base, id, 'completed', values[6], values[7])
redis.call('UNLINK', row, row .. ':dependencies', row .. ':processed', row .. ':failed', row .. ':unsuccessful')
if counts then redis.call('HINCRBY', KEYS[3], 'count', 1) end
write_aside(base)
child_completed(base, parent, id, ARGV[5] == 'result' and ARGV[6] or id)
if record then redis.call(unpack(record)) end
if ARGV[4] == 'release' then
  redis.call('UNLINK', row .. ':lock')
  redis.call('ZREM', base .. 'dead', id)
end
return 1
