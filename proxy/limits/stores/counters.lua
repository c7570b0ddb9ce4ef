-- Counters of limits for a store that several instances share. The arithmetic is that of
-- counters.py.
--
-- ARGV[1] is the time in milliseconds, empty for the server's own time. Each further argument is
-- one call in JSON. Its keys are the next ones of KEYS: the key of the call, then one key per
-- claim. Calls run in order. A call checks all its claims, then charges all or none. Integers below
-- 2^53 are exact in Lua. The script uses fmod for quotients, so that no fraction occurs.
--
--   call                                          reply
--   {"admit", ttl_ms, claims, ledger}             level, reset, wait, flags of each claim, in a list
--   {"read", 0, claims, ledger}                   the same; charges nothing
--   {"settle", 0, claims, actuals, ledger}        {1 if the call was charged, otherwise 0}
--   {"again", 0, claims, actuals, ledger}         the same
--   {"late", ttl_ms, claims, actuals, ledger}     the same
--   {"whole", 0, claims, amounts, ledger}         {1}
--   {"renew", 0, claims}                          {1 if the leases were renewed, otherwise 0}
--   {"charged", ttl_ms, owner, dead_runs}         {1 if the owner has the bill, otherwise 0}
--   {"booked", ttl_ms, owner, dead_runs}          the same
--
-- A claim is {amount, mode, kind, capacity, warn_amount, ...}. The mode is 0 if the limit is
-- enforced, 1 in shadow mode, 2 if the claim is only counted. A rate (kind 1) adds debt_per_unit
-- and drain_per_ms, a budget (2) the four bounds of its windows, a lease (3) its duration in ms. A
-- negative claim never fits.
--
-- The key of a call has its charges until it is settled. If the key is missing, the store has lost
-- its counters:
--   "settle" charges actual spend.
--   "again" repeats a settlement whose result is unknown, so it charges nothing.
--   "late" charges actual spend of a call that may never have been charged, once within ttl_ms.
--
-- A budget is a hash. START, the start of a window, has its spend. START .. "w" exists once the
-- warning was given. START .. "a" .. LEDGER exists once "whole" has charged all that the calls of
-- a ledger have spent in the window. The counter is fresh for the ledger before. Meanwhile START ..
-- "l" .. LEDGER has what its calls settle, and "whole" adds only the rest. Earlier versions write
-- START .. "a" for all ledgers. START .. "b" has the time of the first charge: the counter does not
-- contain the claims of calls charged before, because the store has evicted the one that did.
--
-- The key of a bill has "charged RUN SPAN" until the row of the charge is written, then "booked RUN
-- SPAN". The next owner gets a bill that a dead run has charged and not booked. Earlier versions
-- write only the owner. A call for a bill must be the only call of a script run.

local MAX_AMOUNT = 9007199254740991
local NEVER, WARNED, FRESH = -1, 1, 2
local LEASE_WAIT_MS, GRACE_MS, DAY_MS = 1000, 60000, 86400000
local BUDGET, LEASE = 2, 3
local ENFORCED, COUNT_ONLY = 0, 2

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function to_text(integer)
  return string.format('%.0f', integer)
end

local function divide_up(number, divisor)
  local remainder = math.fmod(number, divisor)
  return (number - remainder) / divisor + (remainder > 0 and 1 or 0)
end

local function read_debt(key, unit, drain)
  local stored = redis.call('GET', key)
  if not stored then return 0 end
  local debt, stored_at, stored_unit = string.match(stored, '^(%d+) (%d+) (%d+)$')
  debt, stored_at, stored_unit = tonumber(debt), tonumber(stored_at), tonumber(stored_unit)
  if stored_unit ~= unit then debt = math.floor(debt / stored_unit * unit) end
  if now > stored_at then debt = math.max(0, debt - (now - stored_at) * drain) end
  return debt
end

local function write_debt(key, debt, unit, drain)
  if debt > 0 then
    local value = to_text(debt) .. ' ' .. to_text(now) .. ' ' .. to_text(unit)
    redis.call('SET', key, value, 'PX', to_text(divide_up(debt, drain) + GRACE_MS))
  else
    redis.call('DEL', key)
  end
end

-- Return start and end of the window of the server time, of the nearest if clocks differ much.
local function find_window(claim)
  for start = 6, 7 do
    if now < claim[start + 1] then return claim[start], claim[start + 1] end
  end
  return claim[8], claim[9]
end

local rate, budget, lease = {}, {}, {}

function rate.read(key, claim)
  local debt = read_debt(key, claim[6], claim[7])
  local excess = debt + (claim[1] - claim[4]) * claim[6]
  local wait = 0
  if claim[1] > claim[4] then
    wait = NEVER
  elseif excess > 0 then
    wait = divide_up(excess, claim[7])
  end
  return {level = debt, reset = -1, wait = wait, flags = 0}
end

function rate.charge(key, claim, state)
  local debt_before, warn_debt = state.level, claim[5] * claim[6]
  local debt = debt_before + claim[1] * claim[6]
  state.level = debt
  if debt_before < warn_debt and warn_debt <= debt then state.flags = WARNED end
  write_debt(key, debt, claim[6], claim[7])
  return debt
end

function rate.settle(key, claim, mark, charged_at, actual)
  local unit, drain = claim[6], claim[7]
  if actual == claim[1] then return end
  local debt = read_debt(key, unit, drain)
  if actual < claim[1] then
    local undrained = mark - math.max(0, now - charged_at) * drain
    debt = debt - math.max(0, math.min((claim[1] - actual) * unit, undrained, debt))
  else
    debt = math.min(MAX_AMOUNT, debt + (actual - claim[1]) * unit)
  end
  write_debt(key, debt, unit, drain)
end

function budget.read(key, claim, ledger)
  local window_start, window_end = find_window(claim)
  local name = to_text(window_start)
  local stored = redis.call('HMGET', key, name, name .. 'a', name .. 'a' .. ledger)
  local state = {level = tonumber(stored[1] or 0), reset = window_end - now, wait = 0, flags = 0}
  state.window_start, state.window_end = window_start, window_end
  if not (stored[2] or stored[3]) then state.flags = FRESH end
  if claim[1] > claim[4] then
    state.wait = NEVER
  elseif state.level + claim[1] > claim[4] then
    state.wait = state.reset
  end
  return state
end

-- Add spend to a window, and delete the fields of windows before the oldest.
local function add_spend(key, window_start, window_end, amount, oldest_start)
  for _, name in ipairs(redis.call('HKEYS', key)) do
    if tonumber(string.match(name, '%d+')) < oldest_start then redis.call('HDEL', key, name) end
  end
  local name = to_text(window_start)
  if redis.call('HSETNX', key, name, 0) == 1 then redis.call('HSET', key, name .. 'b', to_text(now)) end
  redis.call('HINCRBY', key, name, to_text(amount))
  redis.call('PEXPIRE', key, to_text(math.max(0, window_end - now) + DAY_MS))
end

function budget.charge(key, claim, state)
  local name = to_text(state.window_start)
  if state.flags == FRESH then
    add_spend(key, state.window_start, state.window_end, claim[1], claim[6])
  else
    redis.call('HINCRBY', key, name, to_text(claim[1]))
  end
  state.level = state.level + claim[1]
  if claim[5] > 0 and state.level >= claim[5] and redis.call('HSETNX', key, name .. 'w', 1) == 1 then
    state.flags = state.flags + WARNED
  end
  return state.window_start
end

function budget.settle(key, claim, window_start, charged_at, actual, id, ledger)
  local name = to_text(window_start)
  local stored = redis.call('HMGET', key, name, name .. 'a', name .. 'a' .. ledger, name .. 'b')
  local claimed = charged_at < tonumber(stored[4] or 0) and 0 or claim[1]
  if stored[1] and actual ~= claimed then
    local spend = math.max(0, math.min(MAX_AMOUNT, stored[1] + actual - claimed))
    redis.call('HSET', key, name, to_text(spend))
  end
  if stored[1] and actual > 0 and not (stored[2] or stored[3]) then
    redis.call('HINCRBY', key, name .. 'l' .. ledger, to_text(actual))
  end
end

function lease.read(key, claim)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', to_text(now))
  local used = redis.call('ZCARD', key)
  local wait = 0
  if claim[1] > claim[4] then
    wait = NEVER
  elseif used + claim[1] > claim[4] then
    wait = LEASE_WAIT_MS
  end
  return {level = used, reset = -1, wait = wait, flags = 0}
end

local function write_leases(key, claim, id)
  for number = 1, claim[1] do
    redis.call('ZADD', key, to_text(now + claim[6]), number .. ':' .. id)
  end
  redis.call('PEXPIRE', key, to_text(claim[6] + GRACE_MS))
end

function lease.charge(key, claim, state, id)
  write_leases(key, claim, id)
  local used_before = state.level
  state.level = used_before + claim[1]
  if used_before < claim[5] and claim[5] <= state.level then state.flags = WARNED end
  return 0
end

function lease.settle(key, claim, mark, charged_at, actual, id)
  for number = 1, claim[1] do redis.call('ZREM', key, number .. ':' .. id) end
end

local KINDS = {rate, budget, lease}

-- A repeated admission fits and charges nothing.
local function admit(first_key, call, should_charge)
  local id, claims, ledger = KEYS[first_key], call[3], call[4]
  local is_repeated = should_charge and redis.call('EXISTS', id) == 1
  local states, is_refused, reply = {}, false, {}
  for n, claim in ipairs(claims) do
    local amount = claim[1]
    if is_repeated then claim[1] = 0 end
    states[n] = KINDS[claim[3]].read(KEYS[first_key + n], claim, ledger)
    if amount < 0 then states[n].wait = NEVER end
    if is_repeated or claim[2] == COUNT_ONLY then states[n].wait = 0 end
    if states[n].wait ~= 0 and claim[2] == ENFORCED then is_refused = true end
    claim[1] = amount
  end
  if should_charge and not is_repeated and not is_refused then
    local marks = {now}
    for n, claim in ipairs(claims) do
      marks[n + 1] = -1
      if states[n].wait == 0 then
        marks[n + 1] = KINDS[claim[3]].charge(KEYS[first_key + n], claim, states[n], id)
      end
    end
    redis.call('SET', id, cmsgpack.pack(marks), 'PX', call[2])
  end
  for _, state in ipairs(states) do
    reply[#reply + 1] = state.level
    reply[#reply + 1] = state.reset
    reply[#reply + 1] = state.wait
    reply[#reply + 1] = state.flags
  end
  return reply
end

local function charge_budgets(first_key, call)
  for n, claim in ipairs(call[3]) do
    local key, spend = KEYS[first_key + n], call[4][n]
    if claim[3] == BUDGET and spend > 0 then
      local name = to_text(claim[7])
      local marks = redis.call('HMGET', key, name .. 'a', name .. 'a' .. call[5])
      add_spend(key, claim[7], claim[8], spend, claim[6])
      if not (marks[1] or marks[2]) then
        redis.call('HINCRBY', key, name .. 'l' .. call[5], to_text(spend))
      end
    end
  end
end

local function restore(first_key, call)
  for n, claim in ipairs(call[3]) do
    if claim[3] == BUDGET then
      local key, name = KEYS[first_key + n], to_text(claim[7])
      if redis.call('HSETNX', key, name .. 'a' .. call[5], 1) == 1 then
        local spend = call[4][n] - (redis.call('HGET', key, name .. 'l' .. call[5]) or 0)
        redis.call('HDEL', key, name .. 'l' .. call[5])
        add_spend(key, claim[7], claim[8], math.max(0, spend), claim[6])
      end
    end
  end
  return {1}
end

local function settle(first_key, call)
  local verb, ttl_ms, claims, actuals, id = call[1], call[2], call[3], call[4], KEYS[first_key]
  local stored = redis.call('GET', id)
  if stored == '' then return {0} end -- "late" has run before
  if stored then
    local marks = cmsgpack.unpack(stored)
    for n, claim in ipairs(claims) do
      local mark = marks[n + 1]
      if mark >= 0 then
        local actual = math.max(0, actuals[n])
        local key = KEYS[first_key + n]
        KINDS[claim[3]].settle(key, claim, mark, marks[1], actual, id, call[5])
      end
    end
  elseif verb ~= 'again' then
    charge_budgets(first_key, call)
  end
  if verb == 'late' then
    redis.call('SET', id, '', 'PX', ttl_ms)
  elseif stored then
    redis.call('DEL', id)
  end
  return {stored and 1 or 0}
end

local function renew(first_key, call)
  local id = KEYS[first_key]
  local stored = redis.call('GET', id)
  if not stored or stored == '' then return {0} end
  local marks = cmsgpack.unpack(stored)
  for n, claim in ipairs(call[3]) do
    if claim[3] == LEASE and marks[n + 1] >= 0 then write_leases(KEYS[first_key + n], claim, id) end
  end
  return {1}
end

local function bill(key, call)
  local state, ttl_ms, owner, dead_runs = call[1], call[2], call[3], call[4]
  local stored = redis.call('GET', key)
  local stored_run = string.match(stored or '', '^charged (%x+) ')
  local is_free = not stored or stored == 'charged ' .. owner
  for _, run in ipairs(dead_runs) do is_free = is_free or stored_run == run end
  if is_free then redis.call('SET', key, state .. ' ' .. owner, 'PX', ttl_ms) end
  return {(is_free or stored == 'booked ' .. owner) and 1 or 0}
end

local first_key, replies = 1, {}
for n = 2, #ARGV do
  local call = cjson.decode(ARGV[n])
  local verb = call[1]
  if verb == 'charged' or verb == 'booked' then
    if #ARGV > 2 then return redis.error_reply('ERR a bill must be the only call') end
    return {bill(KEYS[1], call)}
  end
  if verb == 'admit' or verb == 'read' then
    replies[n - 1] = admit(first_key, call, verb == 'admit')
  elseif verb == 'renew' then
    replies[n - 1] = renew(first_key, call)
  elseif verb == 'whole' then
    replies[n - 1] = restore(first_key, call)
  else
    replies[n - 1] = settle(first_key, call)
  end
  first_key = first_key + 1 + #call[3]
end
return replies
