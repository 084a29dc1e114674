-- Take a slice off the head of a stream, as far as no consumer group needs it: nothing that is pending, or was not
-- delivered to some group yet. Or count it.
-- KEYS: stream
-- ARGV: how many entries are to stay ("" any), id below which entries may go ("" any), slice, where to begin ("-" unless
--       it is counted only), "count" (changes nothing) or ""
-- Replies: {removed, name of the group that holds up the rest ("" none), the lowest id that it needs, the last id that
--          went}. EMQDATA, NOPERM.
--#include lib/stream.lua
local key, keep, below, slice = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local counts = ARGV[5] == 'count'
if not expect(key, 'stream') then return { 0, '', '', '' } end
if not counts then expect_rights(key, 'XTRIM') end
local info = stream_info(key)
local most = keep ~= '' and math.max(info['length'] - tonumber(keep), 0) or info['length']
local page = redis.call('XRANGE', key, ARGV[4], below ~= '' and '(' .. below or '+', 'COUNT', math.min(most, slice) + 1)
local wanted = math.min(#page, most, slice)
if wanted == 0 then return { 0, '', '', '' } end
local holder, floor = '', nil
for _, group in ipairs(groups_of(key, info)) do
  if group.floor and (not floor or id_below(group.floor, floor)) then holder, floor = group.name, group.floor end
end
local count = 0
while count < wanted and not (floor and not id_below(page[count + 1][1], floor)) do count = count + 1 end
if count == wanted then holder, floor = '', nil end
if count == 0 then return { 0, holder, floor or '', '' } end
local last = page[count][1]
if counts then return { count, holder, floor or '', last } end
local rest = redis.call('XRANGE', key, '(' .. last, '+', 'COUNT', 1)[1]
local removed = rest and redis.call('XTRIM', key, 'MINID', '=', rest[1]) or redis.call('XTRIM', key, 'MAXLEN', '=', 0)
return { removed, holder, floor or '', last }
