-- Add a log line to a job, keeping the last lines.
-- KEYS: row, logs        ARGV: line, keep (0 = all)
-- Replies: how many lines there are now; -1 no row.
--#include lib/check.lua
if not expect(KEYS[1], 'hash') then return -1 end
expect(KEYS[2], 'list')
expect_rights(KEYS[2], 'LTRIM', 'RPUSH')
local lines = redis.call('RPUSH', KEYS[2], ARGV[1])
local keep = tonumber(ARGV[2])
if keep > 0 and lines > keep then
  redis.call('LTRIM', KEYS[2], -keep, -1)
  return keep
end
return lines
