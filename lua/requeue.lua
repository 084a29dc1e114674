-- Requeue a dead job: as reprocess, and its stall count and exemptions are cleared. Attempts stay (they are the token).
-- KEYS: dead, row, exempt        ARGV: base, id
-- Replies: {attempts, stall count that was cleared}; -1 no row; EMQSTATE not dead.
--#include lib/revive.lua
local base, id = ARGV[1], ARGV[2]
local ended, group = check_revive(base, id)
if ended then return ended end
expect(KEYS[3], 'hash')
local values = row_fields(KEYS[2], 'attempts', 'stalled')
local attempts = attempts_of(KEYS[2], values[1])
local stalled = values[2] and whole(values[2], KEYS[2] .. ' stalled') or 0
revive(base, id, group)
redis.call('HDEL', KEYS[2], 'stalled')
redis.call('HDEL', KEYS[3], id)
return { attempts, stalled }
