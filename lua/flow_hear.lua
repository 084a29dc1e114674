-- A parent hears of a child of another queue. Heard twice is heard once.
-- KEYS: parent's row        ARGV: base (of the parent's queue), parent, child, policy ("" it completed; "fp", "id"), result
--       or error
-- Replies: 1; EMQDATA.
--#include lib/flow.lua
local base, parent, child, policy = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
expect_parent(base, parent)
expect_rights(KEYS[1], 'LREM') -- the entry is taken off afterwards
if policy == '' then
  hear_completed(base, parent, child, ARGV[5])
else
  hear_died(base, parent, child, policy, ARGV[5], false)
end
return 1
