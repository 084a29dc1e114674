-- Cache the EVT id of the newest archived record of a stream for other readers.
-- KEYS: watermark, lease        ARGV: state, token, run id of the fence ("" for none), EVT id
-- Replies: 1 set, 0 it was there already; EMQFENCE, EMQDATA; OOM at the memory limit (then nothing changed).
--#include lib/stream.lua
fence_or_unled(KEYS[2], ARGV[1], ARGV[2], ARGV[3])
expect_id(ARGV[4], 'EVT', 'ARGV')
expect(KEYS[1], 'string')
if redis.call('GET', KEYS[1]) == ARGV[4] then return 0 end
redis.call('SET', KEYS[1], ARGV[4])
return 1
