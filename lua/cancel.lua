-- Ask for a job's cancellation. A waiting job is removed outright; a worker that holds one is told, and may choose to stop.
-- KEYS: row        ARGV: base, id, the event (JSON), events channel
-- Replies: "gone" no row; "removed" it was pending or scheduled; "signalled" it is active and the event was published;
--          "locked" it waits, and a worker holds it all the same; "not cancellable" any other state; NOPERM; EMQDATA. The
--          parent of a flow child that is removed hears that it died.
--#include lib/row.lua
--#include lib/flow.lua
local base, id, row = ARGV[1], ARGV[2], KEYS[1]
if not expect(row, 'hash') then return 'gone' end
local values = row_fields(row, 'state', 'group')
local state, group = values[1], values[2]
if state == 'active' then
  if redis.acl_check_cmd and not redis.acl_check_cmd('PUBLISH', ARGV[4], ARGV[3]) then
    return redis.error_reply('NOPERM this user may not publish to ' .. ARGV[4])
  end
  redis.call('PUBLISH', ARGV[4], ARGV[3])
  return 'signalled'
end
if state ~= 'pending' and state ~= 'scheduled' then return 'not cancellable' end
if is_held(row) then return 'locked' end
expect_leave(base, group)
expect_rights(row, 'UNLINK')
local parent = checked_parent(base, row)
leave_everywhere(base, id, group)
delete_row(row)
child_died(base, parent, id, 'cancelled')
return 'removed'
