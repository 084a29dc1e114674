-- Retry a job after an error: back to the schedule, or to the dead set at its last attempt. The parent of a flow child that
-- dies hears of it, in this step or by the outbox.
-- KEYS: active, row, schedule, dead, failed counter [, stream]
-- ARGV: base, id, token, delay ms, max attempts, error, "release" (the claimer's locks go too, and an entry in the
--       dead set) or "" [, node, then the record's names and values]
-- Replies: "scheduled" or "dead"; EMQSTALE wrong token or no row.
--          With a stream, a job that dies gets its record with it, or neither happens: EMQDATA, NOPERM.
--#include lib/leave.lua
--#include lib/flow.lua
--#include lib/record.lua
--#include lib/counter.lua
--#include lib/dedup.lua
local base, id, row, stream = ARGV[1], ARGV[2], KEYS[2], KEYS[6]
if not expect(row, 'hash') then return redis.error_reply('EMQSTALE job gone') end
local values = row_fields(row, 'attempts', 'group', 'parent', 'state', 'parent_queue', 'parent_policy', 'dedup', 'dedup_release')
local attempts = attempts_of(row, values[1])
if attempts ~= tonumber(ARGV[3]) then return redis.error_reply('EMQSTALE retry token mismatch') end
-- A worker that sends its retry again, since the reply was lost, must not let the job die twice.
if ARGV[7] == 'release' and values[4] == 'dead' then return 'dead' end
local dies = attempts >= tonumber(ARGV[5])
local parent = dies and parent_of(base, values[3], values[5], values[6]) or nil
expect_leave(base, values[2])
expect_flow(base, parent)
local counts = not dies or countable(base, string.sub(KEYS[5], #base + 1))
expect_rights(row, 'HDEL', 'HINCRBY', 'HSET', 'UNLINK', 'ZADD')
local now = now_ms()
local record = dies and stream and settle_record(stream, now, tonumber(ARGV[8]), { unpack(ARGV, 9) })
leave_claim(base, id, values[2])
if ARGV[7] == 'release' then
  redis.call('UNLINK', row .. ':lock')
  redis.call('HDEL', row, 'lock')
  redis.call('ZREM', KEYS[4], id)
end
if dies then
  release_dedup(base, id, 'dead', values[7], values[8])
  redis.call('HSET', row, 'last_error', ARGV[6], 'state', 'dead')
  redis.call('ZADD', KEYS[4], 0, id)
  if counts then redis.call('HINCRBY', KEYS[5], 'count', 1) end
  write_aside(base)
  child_died(base, parent, id, ARGV[6])
  if record then redis.call(unpack(record)) end
  return 'dead'
end
redis.call('HSET', row, 'last_error', ARGV[6], 'state', 'scheduled')
redis.call('ZADD', KEYS[3], digits(now + tonumber(ARGV[4])), id)
return 'scheduled'
