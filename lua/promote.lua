-- Promote scheduled jobs that are due to pending or their lane.
-- KEYS: schedule, pending        ARGV: base, limit
-- Replies: how many; EMQDATA.
--#include lib/promote.lua
return #promote_due(ARGV[1], KEYS[1], now_ms(), tonumber(ARGV[2]))
