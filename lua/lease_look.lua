#!lua flags=no-writes
-- The lease of a queue as it stands.
-- KEYS: lease
-- Replies: {now, fields}: name, value ... ("" where absent). EMQDATA.
--#include lib/fence.lua
local lease, now, fields = read_lease(KEYS[1]), now_ms(), {}
for _, name in ipairs(LEASE_FIELDS) do
  fields[#fields + 1] = name
  fields[#fields + 1] = lease[name]
end
return { now, fields }
