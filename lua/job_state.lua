-- Where a job is. Changes nothing.
-- KEYS: row        ARGV: base, id
-- Replies: pending, active, scheduled, dead, awaiting_children, unknown (a row in no set) or absent.
--#include lib/check.lua
local base, id = ARGV[1], ARGV[2]
local row = expect(KEYS[1], 'hash')
local fields = row and row_fields(KEYS[1], 'group', 'state') or { false, false }
for _, place in ipairs({ { 'pending', 'pending' }, { 'active', 'active' }, { 'schedule', 'scheduled' }, { 'dead', 'dead' } }) do
  expect(base .. place[1], 'zset')
  if redis.call('ZSCORE', base .. place[1], id) then return place[2] end
end
if fields[1] and is_id(fields[1], 'GRP') then
  local lane = base .. 'g:' .. fields[1] .. ':pending'
  expect(lane, 'zset')
  if redis.call('ZSCORE', lane, id) then return 'pending' end
end
if fields[2] == 'awaiting_children' then return fields[2] end
return row and 'unknown' or 'absent'
