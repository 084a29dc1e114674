--#include lib/fence.lua
-- Facts of a stream: its life, its groups, the order of its ids. Ids are compared as text: a sequence has 64 bits,
-- a Lua number 53.

-- The fence of a pass; without one (state ""), refuses where somebody leads the queue.
local function fence_or_unled(key, state, token, run)
  if state ~= '' then return check_fence(key, state, token, run) end
  local lease, now = read_lease(key), now_ms()
  local until_ms = tonumber(lease['until']) or 0
  if until_ms > now and until_ms <= now + (tonumber(lease.ms) or 0) then
    refuse('EMQFENCE', 'the queue is led by ' .. shown(lease.role .. ' on ' .. lease.host) .. ', and we have no lease')
  end
  return now
end

local function less_digits(a, b)
  if #a ~= #b then return #a < #b end
  return a < b -- digits alone, of one length: the same order in every locale
end

local function id_below(a, b)
  local a_ms, a_seq = string.match(a, '^0*(%d+)%-0*(%d+)$')
  local b_ms, b_seq = string.match(b, '^0*(%d+)%-0*(%d+)$')
  if not a_ms or not b_ms then refuse('EMQDATA', shown(a_ms and b or a) .. ' is no stream id') end
  if a_ms ~= b_ms then return less_digits(a_ms, b_ms) end
  return less_digits(a_seq, b_seq)
end

-- A flat reply of names and values as a table.
local function named(reply)
  local out = {}
  for i = 1, #reply, 2 do out[reply[i]] = reply[i + 1] end
  return out
end

local function stream_info(key)
  return named(redis.call('XINFO', 'STREAM', key))
end

-- What an entry holds, names and values in order, each led by its length.
local function entry_digest(entry)
  local parts = {}
  for i, text in ipairs(entry[2]) do parts[i] = #text .. ':' .. text end
  return redis.sha1hex(table.concat(parts))
end

local packed = {}
local function four_bytes(n)
  local text = packed[n]
  if not text then
    text = struct.pack('<i4', n)
    packed[n] = text
  end
  return text
end

-- Of the entries `from` to `upto` of a page: SHA-1 (hex) over their ids with a space between and a line's end; how many
-- pairs each has; the lengths of all names, of all values (four bytes each, little-endian); all names, all values. The
-- archive makes the same from what it read (`emq_archive.chunk.Chunk.digest`). Nothing is sorted, and no number is
-- written as text: that is the server's locale's business.
local function span_digest(page, from, upto)
  local ids, counts, names, values, name_sizes, value_sizes, n = {}, {}, {}, {}, {}, {}, 0
  for i = from, upto do
    local flat = page[i][2]
    ids[#ids + 1], counts[#counts + 1] = page[i][1], four_bytes(#flat / 2)
    for j = 1, #flat, 2 do
      local name, value = flat[j], flat[j + 1]
      n = n + 1
      names[n], values[n], name_sizes[n], value_sizes[n] = name, value, four_bytes(#name), four_bytes(#value)
    end
  end
  local told = { table.concat(ids, ' '), '\n' }
  for i, parts in ipairs({ counts, name_sizes, value_sizes, names, values }) do told[2 + i] = table.concat(parts) end
  return redis.sha1hex(table.concat(told))
end

-- Of entries that were read in several goes, so many in each: the digest of the first, then of what stood before and of
-- the next, and so on.
local function chained_digest(page, counts)
  local digest, at = nil, 0
  for _, count in ipairs(counts) do
    local one = span_digest(page, at + 1, at + count)
    digest, at = digest and redis.sha1hex(digest .. one) or one, at + count
  end
  return digest
end

-- The lowest entry that a group has pending and that is there; entries deleted by name are passed over, up to some: then
-- the last of these, which is as far as anything may go now. `deleted`: the highest id that was deleted by name.
local function lowest_pending(key, name, head, deleted)
  local PAGE, PAGES, from = 100, 10, head
  for _ = 1, PAGES do
    local page = redis.call('XPENDING', key, name, from, '+', PAGE)
    for _, entry in ipairs(page) do
      local id = entry[1]
      if (deleted and id_below(deleted, id)) or redis.call('XRANGE', key, id, id)[1] then return id end
    end
    if #page < PAGE then return nil end
    from = '(' .. page[#page][1]
  end
  return string.sub(from, 2)
end

-- Each group: {name, pending (how many), lag (undelivered; -1 unknown), delivered (the last id given to it), floor (the
-- lowest entry that it still needs, if any)}.
-- Pending ids of entries that are gone already hold nothing up.
local function groups_of(key, info)
  local out, head = {}, info['first-entry']
  if info['groups'] == 0 then return out end
  for i, reply in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    local group = named(reply)
    local delivered, floor = group['last-delivered-id'], nil
    if head and group['pending'] > 0 then
      floor = lowest_pending(key, group['name'], head[1], info['max-deleted-entry-id'])
    end
    if head and id_below(delivered, info['last-generated-id']) then
      local waiting = redis.call('XRANGE', key, '(' .. delivered, '+', 'COUNT', 1)[1]
      if waiting and (not floor or id_below(waiting[1], floor)) then floor = waiting[1] end
    end
    out[i] = {
      name = group['name'], pending = group['pending'], lag = group['lag'] or -1, delivered = delivered, floor = floor,
    }
  end
  return out
end

-- A group as the scripts answer it: {name, pending, lowest id needed ("" none), undelivered, last delivered id}.
local function told(group)
  return { group.name, group.pending, group.floor or '', group.lag, group.delivered }
end
