#!lua flags=allow-oom
-- One slice of the stalled sweep as a pass runs it: behind the fence, with exemptions, and with what it did kept on the
-- server until the ledger has it.
-- KEYS: lease, swept, exempt, active, pending, dead
-- ARGV: state, token, run id (lib/fence); base; ledger run, slice number; run and slice that the ledger has ("" "" none);
--       max stalled, limit, most deaths ("" no bound), most exemptions in a row;
--       "all" (whatever is due), or "listed" and then id, score, attempts ("" none), "exempt" or "count" for each lease
-- Replies: {verdict, now, more due (0/1), facts}
--   "unrecorded": the ledger has not acknowledged the slice in `facts`; nothing was done
--   "burst": more would die than allowed; facts = {how many would}; nothing was done
--   "swept": facts = {run, slice, now, then id, outcome, deadline, attempts, epoch, stalls, group, exemptions of each}
--     outcome: recovered, dead, exempt (recovered, not counted), ghost (an exempt id without a row: removed), and
--     forced (recovered, counted although exempt: too often in a row)
--   EMQFENCE, EMQDATA.
--#include lib/slice.lua
--#include lib/sweep.lua
local swept_key, exempt_key, active = KEYS[2], KEYS[3], KEYS[4]
local base, run, slice = ARGV[4], ARGV[5], ARGV[6]
local max_stalled, limit, most_exempt = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[12])

local now = check_fence(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
expect_rights(active, 'DECR', 'HDEL', 'HINCRBY', 'HSET', 'LPUSH', 'LREM', 'LTRIM', 'RPUSH', 'UNLINK', 'ZADD', 'ZREM')
local standing, unrecorded = standing_slice(swept_key, ARGV[7], ARGV[8], now)
if unrecorded then return unrecorded end
expect(exempt_key, 'hash')

local function found_lease(id, score)
  local row = base .. 'job:' .. id
  local values = row_fields(row, 'stalled', 'group', 'attempts', 'lease_epoch')
  return {
    id = id, row = row, group = expect_group(row, values[2]), stalled = values[1] and whole(values[1], row .. ' stalled') or 0,
    deadline = score, attempts = values[3] or '', epoch = values[4] or '',
    ghost = not (values[1] or values[2] or values[3]) and redis.call('EXISTS', row) == 0,
    exemptions = 0, parent = checked_parent(base, row),
  }
end

local leases = {}
if ARGV[13] == 'all' then
  leases = due_members(base, active, now, limit, found_lease)
else
  for i = 14, #ARGV, 4 do
    local id, score = ARGV[i], ARGV[i + 1]
    local lease = redis.call('ZSCORE', active, id) == score and unless_bad('active', id, function()
      expect_id(id, 'JOB', active)
      return expect_instant(score, active .. ' ' .. id) <= now and found_lease(id, score)
    end)
    if lease then
      if lease.attempts == ARGV[i + 2] then
        if ARGV[i + 3] == 'exempt' then
          lease.exemptions = whole(redis.call('HGET', exempt_key, id) or '0', exempt_key .. ' ' .. id)
          lease.exempt = lease.exemptions < most_exempt
          lease.forced = not lease.exempt
        end
        leases[#leases + 1] = lease
      end
    end
  end
end

if #leases > 0 then
  local most = tonumber(ARGV[11])
  local swept, refusal = settle_stalled(base, leases, max_stalled, function(deaths)
    return most and deaths > most and { 'burst', now, 1, { deaths } }
  end)
  if refusal then return refusal end
  tell_parents(base, leases)
end

-- Below this line only our own keys are written.
countable(base, 'metrics:completed') -- or it is named
write_aside(base)
if standing then redis.call('UNLINK', swept_key) end
local facts, spent = { run, slice, digits(now) }, {}
for _, lease in ipairs(leases) do
  local outcome = lease.outcome
  if lease.exempt and outcome == 'recovered' then
    outcome = 'exempt'
    lease.exemptions = redis.call('HINCRBY', exempt_key, lease.id, 1)
  elseif lease.forced and outcome == 'recovered' then
    outcome = 'forced' -- its exemptions stay spent
  else
    spent[#spent + 1] = lease.id
  end
  for _, value in ipairs({ lease.id, outcome, lease.deadline, lease.attempts, lease.epoch, digits(lease.count),
    lease.group or '', digits(lease.exemptions) }) do
    facts[#facts + 1] = value
  end
end
each_chunk(spent, function(...) redis.call('HDEL', exempt_key, ...) end)
if #leases > 0 then keep_slice(swept_key, facts) end
local more = ARGV[13] == 'all' and #leases == limit and 1 or 0
return { 'swept', now, more, facts }
