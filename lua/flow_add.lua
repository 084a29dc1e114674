-- The jobs of one flow that are of this queue, whole, or none of them. A parent waits for its children; leaves are pending.
-- KEYS: pending, adding (hash: flows that are being added), added (set: this flow's jobs that were added to this queue)
-- ARGV: base, root, way ("whole": all of the flow is here; "first": the root's queue, others follow; "more"), ms that `added`
--       is kept, then for each job: id, payload, how many children, parent ("" none), parent's queue ("" this one), policy
-- Replies: 1 added (those that were added before are passed over); 0 the root is there: nothing changed; 2 it is being added:
--          go on; EMQSTATE another job has one of the ids; EMQKIND.
--#include lib/check.lua
local base, root, way = ARGV[1], ARGV[2], ARGV[3]
expect(KEYS[1], 'zset')
expect(KEYS[2], 'hash')
expect(KEYS[3], 'set')
expect_rights(KEYS[1], 'HDEL', 'HSET', 'PEXPIRE', 'SADD', 'SET', 'UNLINK', 'ZADD') -- also what ends the adding
local jobs, added = {}, {}
if way ~= 'more' and redis.call('EXISTS', base .. 'job:' .. root) == 1 then
  return redis.call('HEXISTS', KEYS[2], root) == 1 and 2 or 0
end
for i = 5, #ARGV, 6 do
  local job = {
    id = ARGV[i], payload = ARGV[i + 1], children = tonumber(ARGV[i + 2]), parent = ARGV[i + 3],
    queue = ARGV[i + 4], policy = ARGV[i + 5],
  }
  expect_job(job.id)
  if way ~= 'more' or redis.call('SISMEMBER', KEYS[3], job.id) == 0 then
    if redis.call('EXISTS', base .. 'job:' .. job.id) == 1 then refuse('EMQSTATE', 'job ' .. job.id .. ' exists') end
    jobs[#jobs + 1] = job
  end
end
for _, job in ipairs(jobs) do
  local row = base .. 'job:' .. job.id
  local state = job.children > 0 and 'awaiting_children' or 'pending'
  redis.call('HSET', row, 'state', state, 'attempts', '0', 'payload', job.payload)
  if job.parent ~= '' then redis.call('HSET', row, 'parent', job.parent, 'parent_policy', job.policy) end
  if job.queue ~= '' then redis.call('HSET', row, 'parent_queue', job.queue) end
  if job.children > 0 then
    redis.call('SET', row .. ':dependencies', digits(job.children))
  else
    redis.call('ZADD', KEYS[1], 0, job.id)
  end
  if way == 'more' then redis.call('SADD', KEYS[3], job.id) end
end
if way == 'first' then redis.call('HSET', KEYS[2], root, digits(now_ms())) end
if way == 'more' then redis.call('PEXPIRE', KEYS[3], ARGV[4]) end
return 1
