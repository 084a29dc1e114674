#!lua flags=no-writes
-- What a pass must know of a queue and of the node that owns it, at one moment.
-- KEYS: lease, swept, active, dead, metrics:completed, metrics:failed
-- ARGV: none
-- Replies: {run id, replication id, 1 if this node was promoted, uptime (whole seconds), now, lease token ("" none),
--           lease state, due, active, dead, completed, failed, unrecorded (0/1), earliest deadline ("" none)}. A counter that is none reads 0. EMQDATA.
--#include lib/fence.lua
--#include lib/counter.lua
for i, kind in ipairs({ 'hash', 'list', 'zset', 'zset' }) do expect(KEYS[i], kind) end
local server, replication = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
local lease, now = read_lease(KEYS[1]), now_ms()
local promoted = tonumber(string.match(replication, 'second_repl_offset:(%-?%d+)') or '-1') >= 0
return {
  string.match(server, 'run_id:(%x+)'), string.match(replication, 'master_replid:(%x+)'), promoted and 1 or 0,
  tonumber(string.match(server, 'uptime_in_seconds:(%d+)')), now, lease.token, lease.state,
  redis.call('ZCOUNT', KEYS[3], digits(MIN_MS), now), redis.call('ZCARD', KEYS[3]), redis.call('ZCARD', KEYS[4]),
  (read_counter(KEYS[5])), (read_counter(KEYS[6])),
  redis.call('EXISTS', KEYS[2]), redis.call('ZRANGEBYSCORE', KEYS[3], digits(MIN_MS), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or '',
}
