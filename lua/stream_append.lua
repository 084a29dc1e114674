-- Append records to an event stream. Their ids are settled here (lib/record), so that no writer's clock makes a refusal.
-- KEYS: stream        ARGV: node, then for each record how many texts it has, and these: names and values
-- Replies: the EVT ids in order; EMQDATA, NOPERM: none was written.
--#include lib/record.lua
local now, node = now_ms(), tonumber(ARGV[1])
local commands, told, at = {}, {}, 2
local clock = record_clock(KEYS[1], now, node)
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  local command, id = next_record(clock, { unpack(ARGV, at + 1, at + count) })
  commands[#commands + 1], told[#told + 1] = command, id
  at = at + 1 + count
end
for _, command in ipairs(commands) do redis.call(unpack(command)) end
return told
