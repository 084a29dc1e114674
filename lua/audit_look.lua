-- Look at dead jobs without their payloads: what an audit groups and filters by. Changes nothing.
-- KEYS: dead        ARGV: base, budget (bytes touched), longest error returned, text to look for in payloads (""), ids ...
-- Replies: a list, in order, of {0} not dead any more; {-1} no row, or another type; or {1, attempts, stalled, group,
--          parent, error cut to the longest, its whole length (-1 none), failed children (0/1), held (0/1), payload has
--          the text (0/1)}. Absent fields are "". It may be shorter than the ids: ask again for the rest. EMQDATA.
--#include lib/check.lua
expect(KEYS[1], 'zset')
local base, budget, longest, needle = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local out, size = {}, 0

local function facts_of(id)
  if not redis.call('ZSCORE', KEYS[1], id) then return { 0 } end
  local row = base .. 'job:' .. id
  local values = redis.pcall('HMGET', row, 'attempts', 'stalled', 'group', 'parent', 'last_error')
  if values.err then return { -1 } end
  local error_text = values[5]
  if not values[1] and not error_text and redis.call('EXISTS', row) == 0 then return { -1 } end
  size = size + (error_text and #error_text or 0)
  local has = 0
  if needle ~= '' then
    local payload = redis.call('HGET', row, 'payload') or ''
    size = size + #payload
    has = string.find(payload, needle, 1, true) and 1 or 0
  end
  return {
    1, values[1] or '', values[2] or '', values[3] or '', values[4] and 1 or 0,
    error_text and string.sub(error_text, 1, longest) or '', error_text and #error_text or -1,
    redis.call('EXISTS', row .. ':failed'), math.max(redis.call('EXISTS', row .. ':lock'), redis.call('HEXISTS', row, 'lock')), has,
  }
end

for i = 5, #ARGV do
  out[#out + 1] = facts_of(ARGV[i])
  if size >= budget then break end
end
return out
