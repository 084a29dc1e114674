#!lua flags=allow-oom
-- Trim one slice off the head of a stream: entries that are, byte for byte, what was read and archived, and that nobody
-- needs any more.
-- KEYS: stream, lease
-- ARGV: state, token, run id of the fence ("" for none: then nobody may lead the queue); bound (what is below it may go);
--       the server's run id as read; "respect" or "ignore" (consumer groups); first id of the slice as read; how many ids
--       could not be archived and so must stay, these ids; then of each mark that the slice goes through, from the head
--       of the stream on: last id, digest (span_digest, chained), the counts that it is made of ("1000 3 17")
-- Replies: {verdict, removed, first id found, bound used,
--           {name, pending, lowest id needed, undelivered (-1: unknown), last delivered} for each group that holds
--           the trim up,
--           {how many, first id, digest} of what is left of each mark (how many: 0 none, -1 all of it)}
--   verdict: "trimmed" (maybe of nothing), "gone" (no stream), "life" (another life of the server), "moved" (somebody
--   else took entries off the head since), "changed" (other entries stand there than were read). Only "trimmed" changes
--   anything. EMQFENCE, EMQDATA.
--#include lib/stream.lua
local key = KEYS[1]
local bound, run, groups, first_read, stay = ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local MOST = 1000

fence_or_unled(KEYS[2], ARGV[1], ARGV[2], ARGV[3])
expect_rights(key, 'XDEL', 'XTRIM')
if not expect(key, 'stream') then return { 'gone', 0, '', bound, {}, {} } end
local info = stream_info(key)
local head = info['first-entry']
local first = head and head[1] or ''
if run_id() ~= run then return { 'life', 0, first, bound, {}, {} } end
if not head or id_below(first_read, first) then return { 'moved', 0, first, bound, {}, {} } end

-- Everything from the head of the stream to the end of the last mark is what was read, and nothing else.
local pages, from = {}, '-'
for i = 9 + stay, #ARGV, 3 do
  local counts, total = {}, 0
  for count in string.gmatch(ARGV[i + 2], '%d+') do
    counts[#counts + 1] = tonumber(count)
    total = total + counts[#counts]
  end
  local page = redis.call('XRANGE', key, from, ARGV[i], 'COUNT', total + 1)
  if #page ~= total or chained_digest(page, counts) ~= ARGV[i + 1] then
    return { 'changed', 0, first, bound, {}, {} }
  end
  pages[#pages + 1], from = page, '(' .. ARGV[i]
end

local held = {}
if groups ~= 'ignore' then
  for _, group in ipairs(groups_of(key, info)) do
    if group.floor and id_below(group.floor, bound) then held[#held + 1] = told(group) end
  end
  for _, group in ipairs(held) do
    if id_below(group[3], bound) then bound = group[3] end
  end
end
if from == '-' or id_below(string.sub(from, 2), bound) then
  if redis.call('XRANGE', key, from, '(' .. bound, 'COUNT', 1)[1] then
    return { 'changed', 0, first, bound, {}, {} }
  end
end

local spared, edge = {}, bound
for i = 9, 8 + stay do
  spared[ARGV[i]] = true
  if id_below(ARGV[i], edge) then edge = ARGV[i] end
end
local left, beyond = {}, {}
for i, page in ipairs(pages) do
  if not id_below(page[1][1], bound) then
    left[i] = { -1, '', '' }
  elseif edge == bound and id_below(page[#page][1], bound) then
    left[i] = { 0, '', '' }
  else
    local rest = {}
    for _, entry in ipairs(page) do
      if spared[entry[1]] or not id_below(entry[1], bound) then
        rest[#rest + 1] = entry
      elseif edge ~= bound and not id_below(entry[1], edge) then
        beyond[#beyond + 1] = entry[1]
      end
    end
    left[i] = rest[1] and { #rest, rest[1][1], span_digest(rest, 1, #rest) } or { 0, '', '' }
  end
end

-- The first write is below this line.
local removed = redis.call('XTRIM', key, 'MINID', '=', edge)
for at = 1, #beyond, MOST do
  -- Something that must stay stands below the bound: what is above it goes by name.
  removed = removed + redis.call('XDEL', key, unpack(beyond, at, math.min(#beyond, at + MOST - 1)))
end
return { 'trimmed', removed, first, bound, held, left }
