--#include lib/leave.lua
-- Deleting a row: with its logs and flow books, so that nothing is orphaned.

local BOOKS = { ':logs', ':lock', ':dependencies', ':processed', ':failed', ':unsuccessful' }

local function delete_row(row)
  local keys = { row }
  for _, book in ipairs(BOOKS) do keys[#keys + 1] = row .. book end
  redis.call('UNLINK', unpack(keys))
end
