-- Stalled sweep: recover lapsed leases and count; at the threshold a job is dead-lettered.
-- KEYS: active, pending, dead        ARGV: base, max stalled, limit
-- Replies: {recovered ids, dead ids}, lowest deadline first; EMQDATA.
--#include lib/sweep.lua
expect_rights(KEYS[1], 'UNLINK')
local swept = sweep_due(ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]))
return { swept.recovered, swept.dead }
