-- The parent of a dead flow child hears of it, though it may have before: for deaths by somebody who tells nobody.
-- KEYS: row, dead        ARGV: base, id
-- Replies: 1; 0 the job is not dead, or no child; EMQDATA.
--#include lib/flow.lua
local base, id = ARGV[1], ARGV[2]
expect(KEYS[2], 'zset')
if not expect(KEYS[1], 'hash') or not redis.call('ZSCORE', KEYS[2], id) then return 0 end
local parent = checked_parent(base, KEYS[1])
if not parent then return 0 end
child_died(base, parent, id, redis.call('HGET', KEYS[1], 'last_error') or 'died')
return 1
