-- An act: put another payload in the place of a job's, if it is still the one that was seen and no worker has the job in
-- hand. What was done stays on the server until the ledger has it.
-- KEYS: acted, row, active        ARGV: id, SHA-1 of the payload that was seen, SHA-1 of the new one, the new one
-- Replies: done (also where it is the new one already); gone (no row), active (a worker has it), held (a worker's lock
--          stands), changed (it is neither). EMQKIND, EMQDATA.
--#include lib/act.lua
local id, row = ARGV[1], KEYS[2]
expect_job(id)
expect(KEYS[3], 'zset')
expect_acted(KEYS[1])
expect_rights(row, 'HSET')

local function code_of()
  if not expect(row, 'hash') then return 'gone' end
  if redis.call('ZSCORE', KEYS[3], id) then return 'active' end
  if is_held(row) then return 'held' end
  local found = redis.sha1hex(redis.call('HGET', row, 'payload') or '')
  if found == ARGV[3] or found == ARGV[2] then return 'done' end
  return 'changed'
end

local codes = { id, code_of() }

-- The first write is below this line.
if codes[2] == 'done' then redis.call('HSET', row, 'payload', ARGV[4]) end
keep_acted(KEYS[1], codes)
return codes[2]
