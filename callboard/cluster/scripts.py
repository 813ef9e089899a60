"""The scripts that run in Redis: each is one command, and all or nothing. Nodes and sessions lie in one hash slot."""

from typing import Final

NOBODY: Final = "0" * 16
"""Owner of a session that no worker has."""

BEAT: Final = """
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3])
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('PUBLISH', ARGV[4], ARGV[5])
local found = {}
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local entry = redis.call('GET', ARGV[6] .. name)
  if entry then found[#found + 1] = entry else redis.call('SREM', KEYS[1], name) end
  if #found >= tonumber(ARGV[7]) then break end
end
return found
"""
"""Announce a node, and read all. Keys: the set of names, the node's own entry. Arguments: its name, its entry, seconds
that it is good for, a channel and what is published on it, what the keys of entries begin with, how many at most."""

LEAVE: Final = """
redis.call('DEL', KEYS[2])
redis.call('SREM', KEYS[1], ARGV[1])
return redis.call('PUBLISH', ARGV[2], ARGV[3])
"""
"""Remove a node, and say so. Keys as above. Arguments: its name, a channel and what is published on it."""

WRITE: Final = """
local others = {}
for i = 3, 2 + tonumber(ARGV[2]) do others[ARGV[i]] = true end
for i, key in ipairs(KEYS) do
  local value, before = ARGV[2 + tonumber(ARGV[2]) + i], redis.call('GETRANGE', key, 0, 15)
  if not others[before] then
    if value == '' then redis.call('DEL', key) else redis.call('SET', key, value, 'PX', ARGV[1]) end
  end
end
"""
"""Write records down; one that a living worker of another node has is left alone. Keys: the sessions. Arguments:
milliseconds that they are good for; how many others follow; their names; for each session its owner and record, or
nothing to remove it."""

TOUCH: Final = """
local missing = {}
for i, key in ipairs(KEYS) do
  if redis.call('GETRANGE', key, 0, 15) == ARGV[1 + i] then redis.call('PEXPIRE', key, ARGV[1])
  elseif redis.call('EXISTS', key) == 0 then missing[#missing + 1] = i end
end
return missing
"""
"""Keep records that a node's workers have. Keys: the sessions. Arguments: milliseconds; the owner of each. Returns
which are not there."""

TAKE: Final = """
local value = redis.call('GET', KEYS[1])
if not value or #value < 17 then return {} end
local owner, living = string.sub(value, 1, 16), false
for i = 5, 4 + tonumber(ARGV[4]) do if ARGV[i] == owner then living = true end end
if owner ~= ARGV[1] then
  if living then return {owner} end
  local known = ARGV[3] == '1'
  for i = 5 + tonumber(ARGV[4]), #ARGV do if ARGV[i] == owner then known = true end end
  if not known then return {owner, ''} end
end
redis.call('SET', KEYS[1], ARGV[1] .. string.sub(value, 17), 'PX', ARGV[2])
return {ARGV[1], string.sub(value, 17)}
"""
"""Give a session that no living worker has to a taker. Key: the session. Arguments: the taker; milliseconds; whether
owners that are not listed are dead for sure; how many living follow; their names; then those that are dead for sure.
Returns nothing if there is no such session; its owner; its owner and nothing, if that is not listed; or the taker and
the record."""
