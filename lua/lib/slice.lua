--#include lib/fence.lua
-- What a slice of a sweep did, kept on the server until the ledger has it.

-- Whether a slice stands; and, where it is another than the one that the ledger has, the reply that hands it out.
local function standing_slice(key, run, slice, now)
  expect_rights(key, 'RPUSH', 'UNLINK')
  if not expect(key, 'list') then return false, nil end
  local head = redis.call('LRANGE', key, 0, 1)
  if head[1] == run and head[2] == slice then return true, nil end
  return true, { 'unrecorded', now, 1, redis.call('LRANGE', key, 0, -1) }
end

local function keep_slice(key, facts)
  for first = 1, #facts, 500 do
    redis.call('RPUSH', key, unpack(facts, first, math.min(first + 499, #facts)))
  end
end
