-- What a cycle needs to know of a stream before it reads, at one moment.
-- KEYS: stream
-- Replies: {now ms, run id, replication id, replication offset, 0} where there is no stream; else {now ms, run id,
--           replication id, replication offset, 1, length, last generated id, entries added, highest deleted id, first id,
--           digest of the first entry, last id, digest of the last entry, {name, pending, lowest id needed ("" none),
--           undelivered (-1: unknown), last delivered} for each group}.
--           Ids and digests are "" in an empty stream. EMQDATA for a key of another type.
--#include lib/stream.lua
local key = KEYS[1]
local now, run = now_ms(), run_id()
local replication = redis.call('INFO', 'replication')
local replid = string.match(replication, 'master_replid:(%x+)') or ''
local offset = string.match(replication, 'master_repl_offset:(%d+)') or '0'
if not expect(key, 'stream') then return { digits(now), run, replid, offset, 0 } end
local info = stream_info(key)
local head, tail = info['first-entry'], info['last-entry']
local groups = {}
for i, group in ipairs(groups_of(key, info)) do
  groups[i] = told(group)
end
local function id_and_digest(entry)
  if not entry then return '', '' end
  return entry[1], entry_digest(entry)
end
local first, first_digest = id_and_digest(head)
local last, last_digest = id_and_digest(tail)
return {
  digits(now), run, replid, offset, 1, info['length'], info['last-generated-id'], digits(info['entries-added'] or 0),
  info['max-deleted-entry-id'] or '0-0', first, first_digest, last, last_digest, groups,
}
