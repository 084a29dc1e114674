--#include lib/leave.lua
--#include lib/dedup.lua
-- Deleting a row: with its logs and flow books, and the deduplication key that goes at a removal, so that nothing is orphaned.

local BOOKS = { ':logs', ':lock', ':dependencies', ':processed', ':failed', ':unsuccessful' }

local function delete_row(row)
  local base, id = string.match(row, '^(.*}:)job:(.+)$')
  release_dedup_of(base, id, 'removed')
  local keys = { row }
  for _, book in ipairs(BOOKS) do keys[#keys + 1] = row .. book end
  redis.call('UNLINK', unpack(keys))
end
