-- One slice of the promote pass: due scheduled jobs go to pending or their lane, under the queue's lease. What slice
-- `number` moved stays in `acted` until the caller takes it away, so that a lost reply can be made up for; a slice that
-- comes after a later one of its run does nothing.
-- KEYS: lease, schedule, pending, acted
-- ARGV: state, token, run id (lib/fence); base; limit; number; how long `acted` stays (ms)
-- Replies: {ids ...}. EMQFENCE, EMQDATA.
--#include lib/promote.lua
--#include lib/fence.lua
local now = check_fence(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
expect(KEYS[4], 'string')
expect_rights(KEYS[4], 'SET')
local last = redis.call('GET', KEYS[4])
if last and tonumber(string.match(last, '^%d+') or '') >= tonumber(ARGV[6]) then return {} end
local ids = promote_due(ARGV[4], KEYS[2], now, tonumber(ARGV[5]))
redis.call('SET', KEYS[4], ARGV[6] .. ' ' .. #ids, 'PX', ARGV[7])
return ids
