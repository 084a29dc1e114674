-- An entry that can't be handled goes from a consumer's pending list to a dead-letter stream, in one step.
-- KEYS: stream, dead-letter stream        ARGV: group, consumer, entry id, node, then names and values of the record
-- Replies: the record's EVT id; "" where the entry is not pending with this consumer any more (nothing changes). EMQDATA,
--          NOPERM.
--#include lib/record.lua
local key, group = KEYS[1], ARGV[1]
expect(key, 'stream')
expect_rights(key, 'XACK')
if not redis.call('XPENDING', key, group, ARGV[3], ARGV[3], 1, ARGV[2])[1] then return '' end
local command, id = next_record(record_clock(KEYS[2], now_ms(), tonumber(ARGV[4])), { unpack(ARGV, 5) })
redis.call(unpack(command))
redis.call('XACK', key, group, ARGV[3])
return id
