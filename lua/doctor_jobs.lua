-- The doctor's look at up to some hundred jobs. Changes nothing.
-- KEYS: active (names the slot)        ARGV: base, the set they were seen in ("" for rows by their keys), ids
-- Replies: for each thing found: {id, kind, detail}; for each row that is of a flow, where rows were asked: {id, "flow", ""}.
--#include lib/doctor_job.lua
local base, set = ARGV[1], ARGV[2]
local found = {}
for i = 3, #ARGV do
  local facts = job_facts(base, ARGV[i], set)
  for _, finding in ipairs(judge_job(facts)) do
    found[#found + 1] = { ARGV[i], finding[1], finding[2] }
  end
  if set == '' and (facts.parent or facts.state == 'awaiting_children') then found[#found + 1] = { ARGV[i], 'flow', '' } end
end
return found
