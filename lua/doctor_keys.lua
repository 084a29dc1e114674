-- The doctor's look at a queue's other keys. Changes nothing.
-- KEYS: active (names the slot)        ARGV: base, names of keys after the base
-- Replies: for each thing found: {name, kind, detail}.
--#include lib/doctor_key.lua
local found = {}
for i = 2, #ARGV do
  for _, finding in ipairs(judge_key(ARGV[1], ARGV[i])) do
    found[#found + 1] = { ARGV[i], finding[1], finding[2] }
  end
end
return found
