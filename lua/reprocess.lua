-- A dead job waits again: its error goes, attempts and stall count stay.
-- KEYS: dead, row        ARGV: base, id
-- Replies: 1; -1 no row; EMQSTATE not dead.
--#include lib/revive.lua
local ended, group = check_revive(ARGV[1], ARGV[2])
if ended then return ended end
revive(ARGV[1], ARGV[2], group)
return 1
