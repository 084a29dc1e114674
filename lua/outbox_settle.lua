-- Take one entry off the outbox: delivered, or set aside with the reason. By value: another pump may have taken others.
-- KEYS: outbox, aside list        ARGV: entry, reason ("" it was delivered)
-- Replies: how many were taken (0: another pump did).
--#include lib/check.lua
expect(KEYS[1], 'list')
expect(KEYS[2], 'list')
expect_rights(KEYS[1], 'LREM', 'RPUSH')
local taken = redis.call('LREM', KEYS[1], 1, ARGV[1])
if taken > 0 and ARGV[2] ~= '' then redis.call('RPUSH', KEYS[2], ARGV[2] .. '\0' .. ARGV[1]) end
return taken
