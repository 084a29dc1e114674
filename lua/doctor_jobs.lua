-- The doctor's look at up to some hundred jobs. Changes nothing.
-- KEYS: active (names the slot)        ARGV: base, the set they were seen in ("" for rows by their keys), ids
-- Replies: for each thing found: {id, kind, detail}.
--#include lib/doctor_job.lua
local base, set = ARGV[1], ARGV[2]
local found = {}
for i = 3, #ARGV do
  for _, finding in ipairs(judge_job(job_facts(base, ARGV[i], set))) do
    found[#found + 1] = { ARGV[i], finding[1], finding[2] }
  end
end
return found
