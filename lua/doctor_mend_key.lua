#!lua flags=allow-oom
-- Mend one thing that the doctor found wrong with another key, if it is still so.
-- KEYS: active (names the slot)        ARGV: base, name of the key after the base, kind of damage
-- Replies: 1 mended; 0 no longer so, nothing changed; -1 can't be mended by itself.
--#include lib/doctor_key.lua
local base, name, kind = ARGV[1], ARGV[2], ARGV[3]
local key = base .. name
local findings = judge_key(base, name)
if not still_found(findings, kind) then return 0 end
expect_rights(key, 'HDEL', 'HSET', 'LTRIM', 'UNLINK', 'ZADD', 'ZREM')

local mends = {}

function mends.stray_book() redis.call('UNLINK', key) end
mends.left_logs = mends.stray_book
mends.stray_dedup = mends.stray_book
mends.odd_dedup = mends.stray_book

function mends.long_wake() redis.call('LTRIM', key, 0, WAKE_MAX - 1) end

function mends.bad_count() redis.call('HSET', key, 'count', '0') end

function mends.bad_ceiling()
  for _, finding in ipairs(findings) do redis.call('HDEL', key, finding[3]) end
end

function mends.repeat_without_hash() redis.call('ZREM', base .. 'repeat', string.sub(name, 8)) end

function mends.odd_repeat()
  local every = as_whole(redis.call('HGET', key, 'every_ms'))
  if not every or every <= 0 then return -1 end
  redis.call('ZADD', base .. 'repeat', 'XX', digits(now_ms() + every), string.sub(name, 8))
end

function mends.repeat_not_listed()
  local every = as_whole(redis.call('HGET', key, 'every_ms'))
  if not every or every <= 0 then return -1 end
  redis.call('ZADD', base .. 'repeat', digits(now_ms() + every), string.sub(name, 8))
end

local mend = mends[kind]
if not mend then return -1 end
return mend() or 1
