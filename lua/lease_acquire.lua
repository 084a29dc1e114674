#!lua flags=allow-oom
-- Take the lease of a queue: it is free, expired, ours already, or its holder is known to be dead.
-- KEYS: lease
-- ARGV: state, token, length ms, role, host, machine, pid, start, nonce, token of a holder known to be dead ("" none),
--       state that may be replaced ("" none: only by an operator's word, and never while its lease stands),
--       token of the lease that was looked at ("" none), and of our database: db, life, count
-- Replies: {"taken", run id, token that stood before ("" none)}; {"held", now, fields} another holder; {"foreign", now, fields} another state;
--          {"token", now, fields} the token is not above the lease's, or the lease is not the one that was looked at. fields: name, value ... Only "taken" writes. EMQDATA.
--#include lib/fence.lua
local state, token, length, nonce = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[9]
local lease, now = read_lease(KEYS[1]), now_ms()

local function answer(verdict)
  local fields = {}
  for _, name in ipairs(LEASE_FIELDS) do
    fields[#fields + 1] = name
    fields[#fields + 1] = lease[name]
  end
  return { verdict, now, fields }
end

local until_ms = tonumber(lease['until']) or 0
-- A lease that ends later than its own length from now was written under another clock: it proves nothing.
local stands = until_ms > now and until_ms <= now + (tonumber(lease.ms) or 0)
if lease.state ~= '' and lease.state ~= state and (stands or lease.state ~= ARGV[11]) then return answer('foreign') end
if stands and lease.nonce ~= nonce and lease.token ~= ARGV[10] then return answer('held') end
if lease.token ~= '' and whole(token, 'ARGV token') <= whole(lease.token, KEYS[1] .. ' token') then
  return answer('token')
end
if ARGV[12] and lease.token ~= ARGV[12] then return answer('token') end

local run = run_id()
redis.call('HSET', KEYS[1], 'state', state, 'token', token, 'run', run, 'until', digits(now + length),
  'ms', digits(length), 'role', ARGV[4], 'host', ARGV[5], 'machine', ARGV[6], 'pid', ARGV[7], 'start', ARGV[8],
  'nonce', nonce, 'db', ARGV[13] or '', 'life', ARGV[14] or '', 'count', ARGV[15] or '')
return { 'taken', run, lease.token }
