-- A keeper beside a worker marks a job as held: the key :lock and the row's field `lock`, both of which expire.
-- KEYS: row, lock        ARGV: token, how long the marks stand (ms)
-- Replies: 1; -1 no row (nothing is marked: a row of `lock` alone would come up). EMQDATA, NOPERM.
--#include lib/lock.lua
if not expect(KEYS[1], 'hash') then return -1 end
expect_marks(KEYS[1], KEYS[2])
mark(KEYS[1], ARGV[1], digits(tonumber(ARGV[2])))
return 1
