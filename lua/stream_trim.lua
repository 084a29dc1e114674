#!lua flags=allow-oom
-- Trim one slice off the head of a stream, as far as it is proven to be archived and nobody needs it.
-- KEYS: stream, lease
-- ARGV: state, token, run id of the fence ("" for none: then nobody may lead the queue); bound (what is below it may go); the server's run id, last generated
--       id, entries added and highest deleted id as read; first id read; id and digest of the first entry as read ("" for none);
--       "respect" or "ignore" (consumer groups); length as read; then the ids that could not be archived and so must stay
-- Replies: {verdict, removed, first id found, bound used, 1 if the slice left work below it,
--           {name, pending, lowest id needed, undelivered (-1: unknown), last delivered} for each group that holds
--           the trim up}
--   verdict: "trimmed" (maybe of nothing), "gone" (no stream), "life" (the stream was made anew since it was read),
--   "below" (entries below the first one read). Only "trimmed" changes anything. EMQFENCE, EMQDATA.
--#include lib/stream.lua
local key = KEYS[1]
local bound, run, last, added, deleted = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7]), ARGV[8]
local first_read, head_id, head_digest, groups, length = ARGV[9], ARGV[10], ARGV[11], ARGV[12], tonumber(ARGV[13])
local SLICE, STEP = 1000, 50

fence_or_unled(KEYS[2], ARGV[1], ARGV[2], ARGV[3])
expect_rights(key, 'XDEL', 'XTRIM')
if not expect(key, 'stream') then return { 'gone', 0, '', bound, 0, {} } end
local info = stream_info(key)
local head = info['first-entry']
local first = head and head[1] or ''
-- How many of the entries added are gone: never fewer than before, and more where another entry stands first now.
local moved = (head and head_id ~= '' and head_id ~= first) and 1 or 0
local gone, gone_before = (info['entries-added'] or -1) - info['length'], added - length
local too_few = gone >= 0 and gone_before >= 0 and gone < gone_before + moved
if too_few or run_id() ~= run or id_below(info['last-generated-id'], last) or (info['entries-added'] or added) < added
  or id_below(info['max-deleted-entry-id'] or deleted, deleted)
  or (head and head_id == first and head_digest ~= '' and entry_digest(head) ~= head_digest) then
  return { 'life', 0, first, bound, 0, {} }
end
if not head then return { 'trimmed', 0, '', bound, 0, {} } end
if id_below(first, first_read) then return { 'below', 0, first, bound, 0, {} } end

local held = {}
if groups ~= 'ignore' then
  for _, group in ipairs(groups_of(key, info)) do
    if group.floor and id_below(group.floor, bound) then
      held[#held + 1] = told(group)
    end
  end
  for _, group in ipairs(held) do
    if id_below(group[3], bound) then bound = group[3] end
  end
end

local spared, edge = {}, bound
for i = 14, #ARGV do
  spared[ARGV[i]] = true
  if id_below(ARGV[i], edge) then edge = ARGV[i] end
end

-- The first write is below this line.
local removed = redis.call('XTRIM', key, 'MINID', '=', edge)
local more = 0
if edge ~= bound then
  -- Something that must stay stands below the bound: what is around it goes one by one.
  local from, seen = edge, 0
  while true do
    local page = redis.call('XRANGE', key, from, '(' .. bound, 'COUNT', STEP)
    local doomed = {}
    for i, entry in ipairs(page) do
      if not spared[entry[1]] then doomed[#doomed + 1] = entry[1] end
    end
    if #doomed > 0 then removed = removed + redis.call('XDEL', key, unpack(doomed)) end
    seen = seen + #page
    if #page < STEP then break end
    if seen >= SLICE then
      more = 1
      break
    end
    from = '(' .. page[#page][1]
  end
end
return { 'trimmed', removed, first, bound, more, held }
