-- Cache the EVT id of the newest archived record of a stream for other readers.
-- KEYS: watermark, lease, our marks        ARGV: state, token, run id of the fence ("" for none), EVT id, stream, an EVT id
--       that counts as ours too ("" for none)
-- Replies: 1 it stands, 0 a higher one stood and was left, -1 another archiver's stands and was left; EMQFENCE, EMQDATA;
--          OOM at the memory limit, nothing changed.
--#include lib/stream.lua
fence_or_unled(KEYS[2], ARGV[1], ARGV[2], ARGV[3])
expect_id(ARGV[4], 'EVT', 'ARGV')
expect(KEYS[1], 'string')
expect(KEYS[3], 'hash')
expect_rights(KEYS[1], 'SET')
expect_rights(KEYS[3], 'HSET')
local found, ours = redis.call('GET', KEYS[1]), redis.call('HGET', KEYS[3], ARGV[5])
if found and is_id(found, 'EVT') then
  if found ~= ours and found ~= ARGV[6] then return -1 end
  if bytes_below(ARGV[4], found) then return 0 end
end
redis.call('HSET', KEYS[3], ARGV[5], ARGV[4])
if found ~= ARGV[4] then redis.call('SET', KEYS[1], ARGV[4]) end
return 1
