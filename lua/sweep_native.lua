#!lua flags=allow-oom
-- One slice of the stalled sweep by the EchoMQ module's own command, behind the fence.
-- KEYS: lease, swept, active, pending, dead
-- ARGV: state, token, run id (lib/fence); base; ledger run, slice number; run and slice that the ledger has ("" "" none);
--       max stalled, limit
-- Replies: as sweep_pass; also {"script-claims", now, 0, ids}: rows without an epoch, which the command would never
--          count; nothing was done. EMQFENCE, EMQDATA, and what the command refuses with.
--#include lib/slice.lua
--#include lib/flow.lua
local swept_key, active, base = KEYS[2], KEYS[3], ARGV[4]
local COMMAND = 'EMQ.STALLED.CHECK'

local now = check_fence(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
local standing, unrecorded = standing_slice(swept_key, ARGV[7], ARGV[8], now)
if unrecorded then return unrecorded end
local leases, script_claims = {}, {}
local due = redis.call('ZRANGEBYSCORE', active, '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[10])
for i = 1, #due, 2 do
  expect_id(due[i], 'JOB', active)
  local row = base .. 'job:' .. due[i]
  local values = row_fields(row, 'attempts', 'lease_epoch')
  if not values[2] and redis.call('EXISTS', row) == 1 then script_claims[#script_claims + 1] = due[i] end
  leases[#leases + 1] =
    { id = due[i], row = row, deadline = due[i + 1], attempts = values[1] or '', epoch = values[2] or '',
      parent = checked_parent(base, row) }
end
if #script_claims > 0 then return { 'script-claims', now, 0, script_claims } end

-- The command checks before it writes, and refuses as a whole; what follows it was checked above, or is our own key.
local outcomes = {}
if #leases > 0 then
  local reply = redis.call(COMMAND, 3, active, KEYS[4], KEYS[5], base, ARGV[9], ARGV[10])
  for _, id in ipairs(reply[1]) do outcomes[id] = 'recovered' end
  for _, id in ipairs(reply[2]) do outcomes[id] = 'dead' end
  for _, lease in ipairs(leases) do
    if outcomes[lease.id] == 'dead' then child_died(base, lease.parent, lease.id, 'stalled') end
  end
end
if standing then redis.call('UNLINK', swept_key) end
local facts = { ARGV[5], ARGV[6], digits(now) }
for _, lease in ipairs(leases) do
  local outcome = outcomes[lease.id] or 'ghost'
  if outcome == 'recovered' and lease.epoch ~= ARGV[3] then outcome = 'exempt' end
  local stalls = redis.call('HGET', lease.row, 'stalled') or '0'
  for _, value in ipairs({ lease.id, outcome, lease.deadline, lease.attempts, lease.epoch, stalls, '', '0' }) do
    facts[#facts + 1] = value
  end
end
if #leases > 0 then keep_slice(swept_key, facts) end
return { 'swept', now, #leases == tonumber(ARGV[10]) and 1 or 0, facts }
