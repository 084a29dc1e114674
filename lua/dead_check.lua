#!lua flags=no-writes
-- Which dead jobs a trim would delete now. Changes nothing.
-- KEYS: dead        ARGV: base; the jobs (lib/dead_trim)
-- Replies: {how many would be deleted, id and reason of each that would stay, in turn}. EMQDATA.
--#include lib/check.lua
--#include lib/dead_trim.lua
local go, _, _, stay = doomed(KEYS[1], ARGV[1], 2)
return { #go, stay }
