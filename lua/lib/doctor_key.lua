--#include lib/doctor.lua
-- Every other key of a queue, by its name after the base.

local KEY_KINDS = {
  pending = 'zset', active = 'zset', schedule = 'zset', dead = 'zset', ring = 'list', paused = 'set', glimit = 'hash',
  gactive = 'hash', gweight = 'hash', wake = 'list', meta = 'hash', ['metrics:completed'] = 'hash',
  ['metrics:failed'] = 'hash', ['repeat'] = 'zset', ['flow:outbox'] = 'list',
  limiter = 'string',
}
local BOOK_KINDS = {
  logs = 'list', lock = 'string', dependencies = 'string', processed = 'hash', failed = 'hash', unsuccessful = 'hash',
}

local function judge_book(base, key, id, book)
  if kind_of(key) ~= BOOK_KINDS[book] then
    return { { 'wrong_type', 'is a ' .. kind_of(key) .. ', not a ' .. BOOK_KINDS[book] } }
  end
  if redis.call('EXISTS', base .. 'job:' .. id) == 1 then
    if book == 'dependencies' and not as_whole(redis.call('GET', key)) then
      return { { 'bad_dependencies', 'holds "' .. shown(redis.call('GET', key)) .. '"' } }
    end
    return {}
  end
  -- A worker's marker outlives a completion by moments, and goes by itself.
  if book == 'lock' and redis.call('PTTL', key) >= 0 then return {} end
  -- The reference completes a job without its logs, so that they stay for ever.
  return { { book == 'logs' and 'left_logs' or 'stray_book', 'there is no row job:' .. id } }
end

local function judge_dedup(base, key)
  if kind_of(key) ~= 'string' then return { { 'wrong_type', 'is a ' .. kind_of(key) .. ', not a string' } } end
  -- One with a time to live may outlast its job on purpose.
  if redis.call('PTTL', key) >= 0 then return {} end
  local id = redis.call('GET', key)
  if not is_id(id, 'JOB') then return { { 'odd_dedup', 'holds "' .. shown(id) .. '", which is no JOB id' } } end
  if redis.call('EXISTS', base .. 'job:' .. id) == 1 then return {} end
  return { { 'stray_dedup', 'holds ' .. id .. ', which is gone' } }
end

local function judge_repeat(base, name)
  local key = base .. 'repeat:' .. name
  local due, kind = redis.pcall('ZSCORE', base .. 'repeat', name), kind_of(key)
  if type(due) == 'table' then return {} end -- said of `repeat` itself
  if kind == 'none' then return due and { { 'repeat_without_hash', 'is due, but says not what to enqueue' } } or {} end
  if kind ~= 'hash' then return { { 'wrong_type', 'is a ' .. kind .. ', not a hash' } } end
  local found, every = {}, redis.call('HGET', key, 'every_ms')
  if not as_whole(every) or as_whole(every) <= 0 then
    found[1] = { 'bad_every', 'every_ms is "' .. shown(every or '') .. '"' }
  end
  if not due then
    found[#found + 1] = { 'repeat_not_listed', 'has a template, but no next instant: it never fires' }
  elseif not is_instant(due) then
    found[#found + 1] = { 'odd_repeat', 'its next instant is ' .. shown(due) }
  end
  return found
end

local function judge_fields(key, name)
  if name == 'wake' then
    local length = redis.call('LLEN', key)
    return length > WAKE_MAX and { { 'long_wake', 'holds ' .. length .. ' tokens' } } or {}
  end
  if name == 'metrics:completed' or name == 'metrics:failed' then
    local count = redis.call('HGET', key, 'count')
    return count and not as_whole(count) and { { 'bad_count', 'count is "' .. shown(count) .. '"' } } or {}
  end
  if name ~= 'meta' then return {} end
  local found = {}
  for _, field in ipairs({ 'concurrency', 'max' }) do
    local value = redis.call('HGET', key, field)
    if value and not as_whole(value) then
      found[#found + 1] = { 'bad_ceiling', field .. ' is "' .. shown(value) .. '"', field }
    end
  end
  return found
end

-- A list of {kind, detail}; empty where the key is well or gone. `name` is what follows the base.
local function judge_key(base, name)
  local repeatable = string.match(name, '^repeat:(.+)$')
  if repeatable then return judge_repeat(base, repeatable) end
  local key = base .. name
  local kind = kind_of(key)
  if kind == 'none' then return {} end
  local wanted = KEY_KINDS[name]
  if not wanted and string.find(name, '^stream:.') then
    wanted = string.find(name, ':archived$') and 'string' or 'stream'
  end
  if wanted then
    if kind ~= wanted then return { { 'wrong_type', 'is a ' .. kind .. ', not a ' .. wanted } } end
    return judge_fields(key, name)
  end
  local id, book = string.match(name, '^job:(%w+):(%l+)$')
  if id and is_id(id, 'JOB') and BOOK_KINDS[book] then return judge_book(base, key, id, book) end
  if string.find(name, '^de:.') then return judge_dedup(base, key) end
  return { { 'unknown_key', 'a ' .. kind .. ' that is no key of the wire' } }
end
