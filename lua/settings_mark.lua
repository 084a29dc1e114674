-- Note what an apply wrote to a queue, or that it manages nothing of it any more.
-- KEYS: applied        ARGV: state, revision, digest of the settings ("" takes the note away)
-- Replies: 1.
--#include lib/check.lua
expect(KEYS[1], 'hash')
expect_rights(KEYS[1], 'HSET', 'UNLINK')
if ARGV[3] == '' then
  redis.call('UNLINK', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'state', ARGV[1], 'revision', ARGV[2], 'digest', ARGV[3])
end
return 1
