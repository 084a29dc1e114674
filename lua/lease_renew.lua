#!lua flags=allow-oom
-- Renew leases that still stand, each for itself.
-- KEYS: leases of one node        ARGV: length ms, count of our database's life ("" as it was), then of each lease in
--       turn: state, token, run id
-- Replies: of each lease "" (renewed) or an error's text: EMQFENCE it stands no more, EMQDATA, what the server refused.
-- Flags: one-key
--#include lib/fence.lua
local now, life = now_ms(), run_id()
local changed = { 'until', digits(now + tonumber(ARGV[1])), 'ms', digits(tonumber(ARGV[1])) }
if ARGV[2] ~= '' then changed[5], changed[6] = 'count', ARGV[2] end
local out = {}
for i, key in ipairs(KEYS) do
  local lease, at = lease_of(key), 3 * i
  local fault = not lease and 'EMQDATA ' .. key .. ' is no hash'
  if lease then
    fault = fence_fault(lease, ARGV[at], ARGV[at + 1], ARGV[at + 2], now, life)
    fault = fault and 'EMQFENCE ' .. fault
  end
  out[i] = fault or ''
end
for i, key in ipairs(KEYS) do
  if out[i] == '' then
    local done = redis.pcall('HSET', key, unpack(changed))
    if type(done) == 'table' and done.err then out[i] = done.err end
  end
end
return out
