#!lua flags=no-writes
-- Settings of a queue as they stand at one moment, each with the other half of it that the wire keeps elsewhere.
-- KEYS: lease, applied        ARGV: base, then for each setting its kind and its name: meta <field>, paused <group>,
--                    limit <group>, weight <group>, repeatable <name>
-- Replies: {now, fields of the lease, what the last apply noted (state, revision, digest), whether it has repeatables (0: none),
--          then one list for each setting}:
--   meta, weight: {value (nil: none)}        paused: {1 or 0, what is wrong with the lane's place on the ring or ""}
--   limit: {value (nil: none), the same}
--   repeatable: {every_ms, template, next instant (nil: none), what the YAML says beyond: lane, template, cron, zone}
--   any: {-1, why it can't be read}.
--#include lib/lanes.lua
local base = ARGV[1]

local function odd_key(name, kind)
  local found = redis.call('TYPE', base .. name)['ok']
  if found == 'none' or found == kind then return nil end
  return { -1, name .. ' is a ' .. found .. ', not a ' .. kind }
end

-- What is wrong with a lane's place on the ring, as a matter of its pause and of its ceiling; "" each where it is right.
local function off_place(group)
  local lane = 'g:' .. group .. ':pending'
  local kinds = { ring = 'list', paused = 'set', glimit = 'hash', gactive = 'hash', [lane] = 'zset' }
  for name, kind in pairs(kinds) do
    if odd_key(name, kind) then return '', '' end -- said of that key
  end
  local paused = redis.call('SISMEMBER', base .. 'paused', group) == 1
  local room = below_limit(base, group)
  if redis.call('LPOS', base .. 'ring', group) then
    local at_limit = not room and 'on the ring at its limit, so that a claim goes beyond it' or ''
    return paused and 'on the ring, so that it is served all the same' or '', at_limit
  end
  if not paused and room and redis.call('EXISTS', base .. lane) == 1 then
    local lost = 'not on the ring, so that nobody claims its jobs'
    return lost, lost
  end
  return '', ''
end

local read = {}

function read.meta(name) return odd_key('meta', 'hash') or { redis.call('HGET', base .. 'meta', name) } end

function read.weight(group) return odd_key('gweight', 'hash') or { redis.call('HGET', base .. 'gweight', group) } end

function read.paused(group)
  local wrong = off_place(group)
  return odd_key('paused', 'set') or { redis.call('SISMEMBER', base .. 'paused', group), wrong }
end

function read.limit(group)
  local _, wrong = off_place(group)
  return odd_key('glimit', 'hash') or { redis.call('HGET', base .. 'glimit', group), wrong }
end

function read.repeatable(name)
  local odd = odd_key('repeat', 'zset') or odd_key('repeat:' .. name, 'hash')
  if odd then return odd end
  local row = redis.call('HMGET', base .. 'repeat:' .. name, 'every_ms', 'template')
  local more = redis.pcall('HMGET', 'emq-ops:' .. string.sub(base, 5) .. 'repeat:' .. name, 'lane', 'template', 'cron', 'zone')
  if more.err then more = { false, false, false, false } end
  return { row[1], row[2], redis.call('ZSCORE', base .. 'repeat', name), unpack(more) }
end

local note = redis.call('TYPE', KEYS[2])['ok'] == 'hash' and redis.call('HMGET', KEYS[2], 'state', 'revision', 'digest') or {}
local lease = redis.call('TYPE', KEYS[1])['ok'] == 'hash' and redis.call('HGETALL', KEYS[1]) or {}
local repeats = redis.pcall('EXISTS', base .. 'repeat', 'emq-ops:' .. string.sub(base, 5) .. 'cron')
local out = { digits(now_ms()), lease, note, type(repeats) == 'table' and 1 or repeats }
for i = 2, #ARGV, 2 do out[#out + 1] = read[ARGV[i]](ARGV[i + 1]) end
return out
