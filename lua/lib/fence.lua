--#include lib/check.lua
-- The fence: what a pass writes goes through only while its lease of the queue stands, checked in the same atomic step.
--
-- The lease is a hash, `emq-ops:{q}:lease`: state (UUID of the database that owns the queue), token (never repeats), run
-- (run id of the server's life it was taken under), until (server clock, ms; 0 = given up), ms (its length), and of the
-- holder: role, host, machine, pid, start, nonce. Of the database that took it: db (PostgreSQL's), or life and count (of a
-- SQLite file). It is never deleted, so that the state and the highest token stay known.

local LEASE_FIELDS = { 'state', 'token', 'run', 'until', 'ms', 'role', 'host', 'machine', 'pid', 'start', 'nonce', 'db',
  'life', 'count' }

local function run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end

-- The lease's fields by name ('' where absent); nil for a key that is no hash.
local function lease_of(key)
  local values = redis.pcall('HMGET', key, unpack(LEASE_FIELDS))
  if values.err then return nil end
  local lease = {}
  for i, name in ipairs(LEASE_FIELDS) do lease[name] = values[i] or '' end
  return lease
end

-- As lease_of; refuses a key that is no hash.
local function read_lease(key)
  return lease_of(key) or refuse('EMQDATA', key .. ' is no hash')
end

-- Why a lease is not present, unexpired, and with exactly this state, token and run id, or the server does not live under
-- that run id (`life`) any more; nil where all holds.
local function fence_fault(lease, state, token, run, now, life)
  if lease.token == '' then return 'no lease of this queue' end
  if lease.state ~= state then return 'the lease belongs to state ' .. shown(lease.state) end
  if lease.token ~= token then return 'the lease has token ' .. shown(lease.token) .. ', ours is ' .. shown(token) end
  if lease.run ~= run or life ~= run then return 'the lease is of another life of the server' end
  if (tonumber(lease['until']) or 0) <= now then return 'the lease has expired' end
  return nil
end

-- Refuses with EMQFENCE where there is such a fault. Call it before the first write. Answers the server's time, ms.
local function check_fence(key, state, token, run)
  local now = now_ms()
  local fault = fence_fault(read_lease(key), state, token, run, now, run_id())
  if fault then refuse('EMQFENCE', fault) end
  return now
end
