#!lua flags=allow-oom
-- Forget what was set aside and is not where it stood any more.
-- KEYS: aside        ARGV: base, then members and the set of each
-- Replies: how many were forgotten. EMQDATA.
--#include lib/counter.lua
local base, gone = ARGV[1], 0
expect(KEYS[1], 'hash')
expect_rights(KEYS[1], 'HDEL')
for i = 2, #ARGV, 2 do
  local member, set = ARGV[i], ARGV[i + 1]
  local stands
  if set == 'gweight' then
    local weight = redis.pcall('HGET', base .. set, member)
    stands = weight and not (type(weight) == 'string' and string.find(weight, '^%-?%d+$'))
  elseif member == set then -- a counter
    stands = select(2, read_counter(base .. set)) ~= nil
  else
    stands = redis.pcall('ZSCORE', base .. set, member) ~= false
  end
  if not stands then gone = gone + redis.call('HDEL', KEYS[1], member) end
end
return gone
