-- Note the next instants of repeatables as they were seen, so that whoever looks next sees who moved them since. Those
-- that moved meanwhile are left to the next look.
-- KEYS: repeat, our own `repeat`        ARGV: name, score of each
-- Replies: how many were noted. EMQDATA.
--#include lib/check.lua
expect(KEYS[1], 'zset')
expect(KEYS[2], 'hash')
expect_rights(KEYS[2], 'HSET')
local noted = 0
for i = 1, #ARGV, 2 do
  if redis.call('ZSCORE', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
    noted = noted + 1
  end
end
return noted
