--#include lib/doctor.lua
-- One job: where it is, and what is wrong with that.

local JOB_SETS = { 'active', 'pending', 'schedule', 'dead' }
local STATE_IN = { pending = 'pending', active = 'active', schedule = 'scheduled', dead = 'dead' }

-- `set`: the set in which `id` was seen ("active", "g:<GRP id>:pending" ...), or "" for a row found by its key.
-- Answers {id, row, kind, set, attempts, payload, state, group, stalled, own (its lane), places = {{name, score}, ...}}.
local function job_facts(base, id, set)
  local row = base .. 'job:' .. id
  local facts = { id = id, row = row, set = set, kind = kind_of(row), places = {} }
  if facts.kind == 'hash' then
    local values = redis.call('HMGET', row, 'attempts', 'state', 'group', 'stalled', 'parent')
    facts.attempts, facts.state, facts.group, facts.stalled = values[1], values[2], values[3], values[4]
    facts.parent = values[5]
    facts.payload = redis.call('HEXISTS', row, 'payload') == 1
  end
  facts.grouped = facts.group and is_id(facts.group, 'GRP') or false
  facts.own = facts.grouped and 'g:' .. facts.group .. ':pending' or 'pending'
  local places = facts.places
  local function look_in(name)
    local score = redis.pcall('ZSCORE', base .. name, id)
    if type(score) == 'table' then
      facts.blind = true -- a key of another type: whether the job is in it can't be known
    elseif score then
      places[#places + 1] = { name, score }
    end
  end
  for _, name in ipairs(JOB_SETS) do look_in(name) end
  if facts.grouped then look_in(facts.own) end
  if set ~= '' and not STATE_IN[set] and set ~= facts.own then look_in(set) end
  return facts
end

local function place_names(facts)
  local names = {}
  for i, place in ipairs(facts.places) do names[i] = place[1] end
  return table.concat(names, ', ')
end

local function right_score(name, score)
  if name == 'active' or name == 'schedule' then return is_instant(score) end
  return tonumber(score) == 0
end

local function judge_one_place(facts, found)
  local name, score = facts.places[1][1], facts.places[1][2]
  if not right_score(name, score) then
    found[#found + 1] = { 'odd_score', 'in ' .. name .. ' with the score ' .. shown(score) }
  end
  local is_lane = not STATE_IN[name]
  if (is_lane or name == 'pending') and name ~= facts.own then
    found[#found + 1] = { 'wrong_lane', 'waits in ' .. name .. ', belongs into ' .. facts.own }
  end
  local wanted = STATE_IN[name] or 'pending'
  if facts.state ~= wanted then
    found[#found + 1] = { 'state_mismatch', 'in ' .. name .. ', but its state is ' .. shown(facts.state or 'absent') }
  end
end

-- A list of {kind, detail}; empty where the job is well or gone.
local function judge_job(facts)
  local places = facts.places
  if not is_id(facts.id, 'JOB') then
    return #places > 0 and { { 'odd_member', 'in ' .. place_names(facts) } } or {}
  end
  if facts.kind == 'none' then
    if #places == 0 then return {} end
    return { { places[1][1] == 'active' and 'ghost' or 'member_without_row', 'in ' .. place_names(facts) } }
  end
  if facts.kind ~= 'hash' then return { { 'wrong_type', 'the row is a ' .. facts.kind .. ', not a hash' } } end
  if not facts.attempts and not facts.payload then
    return { { 'hollow_row', #places > 0 and 'in ' .. place_names(facts) or 'in no set' } }
  end
  local found = {}
  if not facts.attempts then
    found[1] = { 'no_attempts', 'in ' .. (#places > 0 and place_names(facts) or 'no set') }
  elseif not as_whole(facts.attempts) or as_whole(facts.attempts) < 0 then
    found[1] = { 'bad_attempts', 'attempts is "' .. shown(facts.attempts) .. '"' }
  end
  if facts.stalled and not as_whole(facts.stalled) then
    found[#found + 1] = { 'bad_stalled', 'stalled is "' .. shown(facts.stalled) .. '"' }
  end
  if facts.group and not facts.grouped then
    found[#found + 1] = { 'odd_group', 'group is "' .. shown(facts.group) .. '"' }
  end
  if #places == 1 then
    judge_one_place(facts, found)
  elseif #places > 1 then
    found[#found + 1] = { 'two_places', 'in ' .. place_names(facts) .. '; state ' .. shown(facts.state or 'absent') }
  elseif facts.state ~= 'awaiting_children' and not facts.blind then
    found[#found + 1] = { 'lost_row', 'in no set; state ' .. shown(facts.state or 'absent') }
  end
  return found
end
