-- Remove one job from wherever it is, with its row, logs and books. The parent of a flow child hears that it died.
-- KEYS: row, lock [, dedup key]        ARGV: base, id
-- Replies: 1; -1 no row; EMQLOCK a worker holds it. The dedup key goes only if it holds this id.
--#include lib/row.lua
--#include lib/flow.lua
local base, id, row = ARGV[1], ARGV[2], KEYS[1]
if is_held(row) then return redis.error_reply('EMQLOCK job is locked') end
if not expect(row, 'hash') then return -1 end
local group = redis.call('HGET', row, 'group')
expect_leave(base, group)
expect_rights(row, 'UNLINK')
local parent = checked_parent(base, row)
if KEYS[3] then expect(KEYS[3], 'string') end
leave_everywhere(base, id, group)
delete_row(row)
child_died(base, parent, id, 'removed')
if KEYS[3] and redis.call('GET', KEYS[3]) == id then redis.call('UNLINK', KEYS[3]) end
return 1
