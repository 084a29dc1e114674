--#include lib/check.lua
-- Acts on selected dead jobs: whether one is still what was selected, and what was done, kept until the ledger has it.

local ACTED_MS = 2592000000 -- 30 days: as long as the ledger keeps what an undo needs

-- Why a job is not what it was when it was selected, wherever it stands, or nil.
local function judge_unchanged(base, id, attempts, stalls)
  if not is_id(id, 'JOB') then return 'damaged' end
  local row = base .. 'job:' .. id
  if redis.call('EXISTS', row) == 0 then return 'gone' end
  local values = row_fields(row, 'attempts', 'stalled')
  if attempts_of(row, values[1]) ~= tonumber(attempts) then return 'changed' end
  if (values[2] and whole(values[2], row .. ' stalled') or 0) ~= tonumber(stalls) then return 'changed' end
  return nil
end

-- Why a selected dead job must be left alone, or nil.
local function judge_selected(base, dead, id, attempts, stalls)
  if is_id(id, 'JOB') and redis.call('EXISTS', base .. 'job:' .. id) == 1 and not redis.call('ZSCORE', dead, id) then
    return 'alive'
  end
  return judge_unchanged(base, id, attempts, stalls)
end

-- Judges each job of ARGV[first] on (id, attempts, stalls): id, code, id, code ... What `code_of` refuses is 'damaged'.
local function judge_jobs(first, code_of)
  local codes = {}
  for i = first, #ARGV, 3 do
    local fine, code = pcall(code_of, ARGV[i], ARGV[i + 1], ARGV[i + 2])
    codes[#codes + 1] = ARGV[i]
    codes[#codes + 1] = fine and code or 'damaged'
  end
  return codes
end

-- Why a job may not be taken away, or nil: held, parent (its children still report to it).
local function bound_code(row)
  if is_held(row) then return 'held' end
  local waits = tonumber(redis.call('GET', row .. ':dependencies') or '0') or 1
  if waits > 0 and waits > redis.call('HLEN', row .. ':failed') then return 'parent' end
  return nil
end

local function expect_acted(key)
  expect_rights(key, 'PEXPIRE', 'RPUSH', 'UNLINK')
end

-- `codes`: id, code, id, code ...
local function keep_acted(key, codes)
  redis.call('UNLINK', key)
  for first = 1, #codes, 500 do
    redis.call('RPUSH', key, unpack(codes, first, math.min(first + 499, #codes)))
  end
  redis.call('PEXPIRE', key, ACTED_MS)
end
