-- A stream consumer's beat: the entries that it has in hand are not idle. Deliveries are not counted by it.
-- KEYS: stream        ARGV: group, consumer, entry ids
-- Replies: the ids that are not pending with this consumer any more: acknowledged, or taken over. EMQDATA, NOPERM.
--#include lib/check.lua
local key, group, consumer = KEYS[1], ARGV[1], ARGV[2]
expect(key, 'stream')
expect_rights(key, 'XCLAIM')
local lost, held = {}, {}
for i = 3, #ARGV do
  if redis.call('XPENDING', key, group, ARGV[i], ARGV[i], 1, consumer)[1] then
    held[#held + 1] = ARGV[i]
  else
    lost[#lost + 1] = ARGV[i]
  end
end
for first = 1, #held, 500 do
  local command = { 'XCLAIM', key, group, consumer, 0, unpack(held, first, math.min(first + 499, #held)) }
  command[#command + 1] = 'IDLE'
  command[#command + 1] = 0
  command[#command + 1] = 'JUSTID'
  redis.call(unpack(command))
end
return lost
