-- Enqueue many jobs, flat and grouped ones: each that is not there yet, in the given order.
-- KEYS: pending        ARGV: base, then id, payload, group ("" none) of each
-- Replies: 1 (admitted) or 0 (its row exists, or it stood before it in the call) for each; EMQKIND; EMQDATA.
--#include lib/batch.lua
local base = ARGV[1]
local batch, jobs, told, seen = new_batch(base), {}, {}, {}
for i = 2, #ARGV, 3 do
  local id, group = ARGV[i], ARGV[i + 2]
  expect_job(id)
  if group ~= '' and not is_id(group, 'GRP') then return redis.error_reply('EMQKIND not a GRP id') end
  local fresh = not seen[id] and redis.call('EXISTS', base .. 'job:' .. id) == 0
  seen[id] = true
  told[#told + 1] = fresh and 1 or 0
  if fresh then jobs[#jobs + 1] = { id = id, payload = ARGV[i + 1], group = group ~= '' and group or nil } end
end
load_lanes(batch, jobs)
for _, job in ipairs(jobs) do
  local row = base .. 'job:' .. job.id
  if job.group then
    redis.call('HSET', row, 'state', 'pending', 'attempts', '0', 'payload', job.payload, 'group', job.group)
  else
    redis.call('HSET', row, 'state', 'pending', 'attempts', '0', 'payload', job.payload)
  end
  batch_pending(batch, job.id, job.group)
end
write_batch(batch)
return told
