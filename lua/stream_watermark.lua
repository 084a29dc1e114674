-- Cache the EVT id of the newest archived record of a stream for other readers.
-- KEYS: watermark, lease        ARGV: state, token, run id of the fence ("" for none), EVT id
-- Replies: 1 it stands, 0 a higher one stood and was left; EMQFENCE, EMQDATA; OOM at the memory limit, nothing changed.
--#include lib/stream.lua
fence_or_unled(KEYS[2], ARGV[1], ARGV[2], ARGV[3])
expect_id(ARGV[4], 'EVT', 'ARGV')
expect(KEYS[1], 'string')
local found = redis.call('GET', KEYS[1])
if found == ARGV[4] then return 1 end
if found and is_id(found, 'EVT') and bytes_below(ARGV[4], found) then return 0 end
redis.call('SET', KEYS[1], ARGV[4])
return 1
