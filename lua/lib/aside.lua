--#include lib/check.lua
-- What is bad is set aside, one by one: a member, score or row that a script can't take stays where it stands, is passed
-- over, and is named in `emq-ops:{q}:aside` (a hash: member -> "<set>: <reason>"), at most 1,000 of them.

local ASIDE_MOST = 1000
local ASIDE_PAGE, ASIDE_PAGES = 500, 20 -- how far a script looks past what is bad
local aside = {} -- {member, set, reason} in the order found, in this run of the script

local function set_aside(set, member, reason)
  aside[#aside + 1] = { member, set, reason }
end

-- What `check(member, ...)` answers; nil where it refuses `member` of `set` for what it is, which is then set aside. Any
-- other refusal (a right, a ceiling) ends the script.
local function unless_bad(set, member, check, ...)
  local fine, found = pcall(check, member, ...)
  if fine then return found end
  local text = type(found) == 'table' and found.err or tostring(found)
  if not string.find(text, '^EMQDATA') and not string.find(text, '^EMQSTATE') then error(found) end
  set_aside(set, member, text)
  return nil
end

-- Names what was set aside. Call it after the last check. A user who may not write there names nothing.
local function write_aside(base)
  if #aside == 0 then return end
  local key = 'emq-ops:' .. string.sub(base, 5) .. 'aside'
  if redis.acl_check_cmd and not redis.acl_check_cmd('HSET', key, 'f', 'v') then return end
  local kind = redis.call('TYPE', key)['ok']
  if kind ~= 'none' and kind ~= 'hash' then return end
  local room = ASIDE_MOST - redis.call('HLEN', key)
  for _, one in ipairs(aside) do
    local text = one[2] .. ': ' .. one[3]
    local known = redis.call('HEXISTS', key, one[1]) == 1
    if known or room > 0 then
      redis.call('HSET', key, one[1], text)
      if not known then room = room - 1 end
    end
  end
end

-- A member can be taken again: it is named no more.
local function forget_aside(base, member)
  local key = 'emq-ops:' .. string.sub(base, 5) .. 'aside'
  if redis.pcall('HEXISTS', key, member) ~= 1 then return end
  if redis.acl_check_cmd and not redis.acl_check_cmd('HDEL', key, 'f') then return end
  redis.call('HDEL', key, member)
end

-- A row's group, checked.
local function expect_group(row, group)
  if group then expect_id(group, 'GRP', row .. ' group') end
  return group
end

-- Up to `limit` members of a zset whose score is due, lowest first, as `check(id, score)` answers them. An odd score, a
-- member that is no id and what `check` refuses are passed over.
local function due_members(base, key, now, limit, check)
  local set, found = string.sub(key, #base + 1), {}
  local function odd_score(member, score) expect_instant(score, key .. ' ' .. shown(member)) end
  local function due_member(id, score)
    expect_id(id, 'JOB', key)
    return check(id, score)
  end
  for _, range in ipairs({ { '-inf', '(' .. digits(MIN_MS) }, { '(' .. digits(MAX_MS), '+inf' } }) do
    local odd = redis.call('ZRANGEBYSCORE', key, range[1], range[2], 'WITHSCORES', 'LIMIT', 0, 100)
    for i = 1, #odd, 2 do unless_bad(set, odd[i], odd_score, odd[i + 1]) end
  end
  local size = math.max(100, math.min(limit, ASIDE_PAGE))
  for from = 0, limit + ASIDE_PAGE * ASIDE_PAGES, size do
    local due = redis.call('ZRANGEBYSCORE', key, digits(MIN_MS), now, 'WITHSCORES', 'LIMIT', from, size)
    for i = 1, #due, 2 do
      if #found >= limit then return found end
      found[#found + 1] = unless_bad(set, due[i], due_member, due[i + 1])
    end
    if #due < 2 * size then break end
  end
  return found
end
