-- A beat of a keeper beside a worker: extends every held lease that is still in active under its token, and freshens both
-- marks of its job.
-- KEYS: active        ARGV: base, lease ms, then id, token pairs
-- Replies: the ids whose lease was not extended, in order. One that left active is never put back, and a longer lease is
--          never shortened. EMQDATA, NOPERM.
--#include lib/lock.lua
local base, lease = ARGV[1], tonumber(ARGV[2])
expect(KEYS[1], 'zset')
expect_rights(KEYS[1], 'ZADD')
local deadline, marks = digits(now_ms() + lease), digits(2 * lease)
local held, lost = {}, {}
for i = 3, #ARGV, 2 do
  local id = ARGV[i]
  local row = base .. 'job:' .. id
  if has_token(row, ARGV[i + 1]) and redis.call('ZSCORE', KEYS[1], id) then
    expect_marks(row, row .. ':lock')
    held[#held + 1] = { id, row, ARGV[i + 1] }
  else
    lost[#lost + 1] = id
  end
end
for _, one in ipairs(held) do
  redis.call('ZADD', KEYS[1], 'XX', 'GT', deadline, one[1])
  mark(one[2], one[3], marks)
end
return lost
