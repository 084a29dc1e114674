--#include lib/check.lua
-- The marks of a keeper beside a worker: `job:<id>:lock`, and the row's field `lock`. The field is set only where it can
-- expire (HPEXPIRE: Valkey 9, Redis 7.4, and a user with the right to it): one that stays would hold a job for ever.

local function may_expire_fields(row)
  if not redis.acl_check_cmd then return false end
  local known, may = pcall(function() return redis.acl_check_cmd('HPEXPIRE', row, '1', 'FIELDS', '1', 'lock') end)
  return known and may
end

local function expect_marks(row, lock)
  expect(lock, 'string')
  expect_rights(row, 'HDEL', 'HSET', 'SET', 'UNLINK')
end

local function mark(row, token, ms)
  redis.call('SET', row .. ':lock', token, 'PX', ms)
  if may_expire_fields(row) then
    redis.call('HSET', row, 'lock', token)
    redis.call('HPEXPIRE', row, ms, 'FIELDS', '1', 'lock')
  end
end
