-- The arithmetic of counters.py, for a store that several instances share.
--
-- ARGV[1] is the time in milliseconds if the caller has one of its own, as tests do; else the
-- server's counts. Each further argument is one call in JSON, whose keys are the next of KEYS:
-- first the call's own, then one for each claim. Calls are done in order, each as a whole: check
-- all its claims, then charge all. Whole numbers below 2^53 are exact in Lua, and nothing here
-- makes a fraction: quotients are taken by fmod.
--
--   {"admit", keep, claims, ledger}         -> {level, reset, wait, flags, ...}
--   {"read", 0, claims, ledger}             -> the same; nothing is charged
--   {"settle" | "again" | "late" | "whole", keep, claims, actuals, ledger}
--                                           -> {1 if the call was under way, else 0}
--   {"renew", 0, claims}                    -> the same; its places are leased anew
--   {"charged" | "booked", keep, owner, dead}
--                                           -> {1 if the owner has the bill, else 0}
--
-- The last is done alone, and its only key is that of a bill, "charged RUN SPAN" until the row of
-- the charge is written and "booked RUN SPAN" from then on. What a dead run has charged and not
-- booked is for the next owner. Earlier versions write the owner alone.
--
-- A negative claim never fits, and what was used is never negative.
--
-- A claim is {amount, shadow, kind, capacity, warn, ...}, with 2 for shadow where it is only
-- counted, whatever is left, and then of a rate (1) its unit_debt and
-- drain, of a budget (2) the four bounds of its windows, of concurrency (3) the lease in ms.
--
-- A call's key holds what it was charged, until it is settled. If that is gone, the store has lost
-- its counters, and "settle" charges the money that was really spent; "again" does not, because
-- the first try may have come through. "late" is for a call that may never have been charged
-- here: its money is, once, for as long as its key is kept. "whole" is for all that a ledger knows
-- of the window: from then on the counter is no longer fresh for that ledger. The ledger of a
-- "late" call knows its money, too: while the counter is fresh for it, that money is kept under
-- "l" and the id, behind the begin of the window, and "whole" adds only the rest.
--
-- A budget is a hash: the begin of a window -> what is spent, with "w" behind it once it was warned
-- of, and with "a" and the id of a ledger once an instance with that ledger admitted a call: until
-- then it is fresh for that ledger. "a" without an id, of an earlier version, is for all ledgers.

local MOST = 9007199254740991
local NEVER, WARNED, FRESH = -1, 1, 2
local BUSY, GRACE, DAY = 1000, 60000, 86400000
local BUDGET, CONCURRENCY = 2, 3
local COUNTED = 2

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function text(number)
  return string.format('%.0f', number)
end

local function up(number, by) -- the quotient, rounded up
  local rest = math.fmod(number, by)
  return (number - rest) / by + (rest > 0 and 1 or 0)
end

local function debt_of(key, unit, drain)
  local kept = redis.call('GET', key)
  if not kept then return 0 end
  local debt, at, of = string.match(kept, '^(%d+) (%d+) (%d+)$')
  debt, at, of = tonumber(debt), tonumber(at), tonumber(of)
  if of ~= unit then debt = math.floor(debt / of * unit) end
  if now > at then debt = math.max(0, debt - (now - at) * drain) end
  return debt
end

local function keep_debt(key, debt, unit, drain)
  if debt > 0 then
    local kept = text(debt) .. ' ' .. text(now) .. ' ' .. text(unit)
    redis.call('SET', key, kept, 'PX', text(up(debt, drain) + GRACE))
  else
    redis.call('DEL', key)
  end
end

local function window(claim) -- the one of the server's time; the nearest if clocks are far apart
  for first = 6, 7 do
    if now < claim[first + 1] then return claim[first], claim[first + 1] end
  end
  return claim[8], claim[9]
end

local rate, budget, concurrency = {}, {}, {}

function rate.look(key, claim)
  local debt = debt_of(key, claim[6], claim[7])
  local over = debt + (claim[1] - claim[4]) * claim[6]
  local wait = 0
  if claim[1] > claim[4] then wait = NEVER elseif over > 0 then wait = up(over, claim[7]) end
  return {level = debt, reset = -1, wait = wait, flags = 0}
end

function rate.take(key, claim, seen)
  local before, warn = seen.level, claim[5] * claim[6]
  local debt = before + claim[1] * claim[6]
  seen.level = debt
  if before < warn and warn <= debt then seen.flags = WARNED end
  keep_debt(key, debt, claim[6], claim[7])
  return debt
end

function rate.settle(key, claim, charge, at, actual)
  local unit, drain = claim[6], claim[7]
  if actual == claim[1] then return end
  local debt = debt_of(key, unit, drain)
  if actual < claim[1] then
    local undrained = charge - math.max(0, now - at) * drain
    debt = debt - math.max(0, math.min((claim[1] - actual) * unit, undrained, debt))
  else
    debt = math.min(MOST, debt + (actual - claim[1]) * unit)
  end
  keep_debt(key, debt, unit, drain)
end

function budget.look(key, claim, ledger)
  local begin, ends = window(claim)
  local all = text(begin) .. 'a'
  local kept = redis.call('HMGET', key, text(begin), all, all .. ledger)
  local seen = {begin = begin, ends = ends, reset = ends - now, wait = 0, flags = 0}
  seen.mark = all .. ledger
  if not (kept[2] or kept[3]) then seen.flags = FRESH end
  seen.level = tonumber(kept[1] or 0)
  if claim[1] > claim[4] then
    seen.wait = NEVER
  elseif seen.level + claim[1] > claim[4] then
    seen.wait = seen.reset
  end
  return seen
end

local function spend(key, begin, ends, amount, oldest)
  for _, name in ipairs(redis.call('HKEYS', key)) do
    if tonumber(string.match(name, '%d+')) < oldest then redis.call('HDEL', key, name) end
  end
  redis.call('HINCRBY', key, text(begin), text(amount))
  redis.call('PEXPIRE', key, text(math.max(0, ends - now) + DAY))
end

function budget.take(key, claim, seen)
  local name = text(seen.begin)
  if seen.flags == FRESH then
    spend(key, seen.begin, seen.ends, claim[1], claim[6])
    redis.call('HSET', key, seen.mark, 1)
  else
    redis.call('HINCRBY', key, name, text(claim[1]))
  end
  seen.level = seen.level + claim[1]
  if claim[5] > 0 and seen.level >= claim[5] and redis.call('HSETNX', key, name .. 'w', 1) == 1 then
    seen.flags = seen.flags + WARNED
  end
  return seen.begin
end

function budget.settle(key, claim, charge, at, actual)
  local name = text(charge)
  local used = redis.call('HGET', key, name)
  if used and actual ~= claim[1] then
    used = math.max(0, math.min(MOST, used + actual - claim[1]))
    redis.call('HSET', key, name, text(used))
  end
end

function concurrency.look(key, claim)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', text(now))
  local used = redis.call('ZCARD', key)
  local wait = 0
  if claim[1] > claim[4] then wait = NEVER elseif used + claim[1] > claim[4] then wait = BUSY end
  return {level = used, reset = -1, wait = wait, flags = 0}
end

local function lease(key, claim, id)
  for place = 1, claim[1] do
    redis.call('ZADD', key, text(now + claim[6]), place .. ':' .. id)
  end
  redis.call('PEXPIRE', key, text(claim[6] + GRACE))
end

function concurrency.take(key, claim, seen, id)
  lease(key, claim, id)
  local before = seen.level
  seen.level = before + claim[1]
  if before < claim[5] and claim[5] <= seen.level then seen.flags = WARNED end
  return 0
end

function concurrency.settle(key, claim, charge, at, actual, id)
  for place = 1, claim[1] do redis.call('ZREM', key, place .. ':' .. id) end
end

local KINDS = {rate, budget, concurrency}

local function admit(first, call, charging)
  local id, claims = KEYS[first], call[3]
  local again = charging and redis.call('EXISTS', id) == 1
  local seen, refused, reply = {}, false, {}
  for n, claim in ipairs(claims) do
    local amount = claim[1]
    if again then claim[1] = 0 end
    seen[n] = KINDS[claim[3]].look(KEYS[first + n], claim, call[4])
    if amount < 0 then seen[n].wait = NEVER end
    if again or claim[2] == COUNTED then seen[n].wait = 0 end
    if seen[n].wait ~= 0 and claim[2] == 0 then refused = true end
    claim[1] = amount
  end
  if charging and not again and not refused then
    local charges = {now}
    for n, claim in ipairs(claims) do
      charges[n + 1] = -1
      if seen[n].wait == 0 then
        seen[n].charged = KINDS[claim[3]].take(KEYS[first + n], claim, seen[n], id)
        charges[n + 1] = seen[n].charged
      end
    end
    redis.call('SET', id, cmsgpack.pack(charges), 'PX', call[2])
  end
  for _, each in ipairs(seen) do
    reply[#reply + 1] = each.level
    reply[#reply + 1] = each.reset
    reply[#reply + 1] = each.wait
    reply[#reply + 1] = each.flags
  end
  return reply
end

local function late_by_ledger(key, begin, call, spent) -- what to add to the counter
  local late, ledger = begin .. 'l' .. call[5], call[5]
  if call[1] == 'whole' then
    spent = spent - tonumber(redis.call('HGET', key, late) or 0)
    redis.call('HDEL', key, late)
    redis.call('HSET', key, begin .. 'a' .. ledger, 1)
  elseif spent > 0 then
    local marks = redis.call('HMGET', key, begin .. 'a', begin .. 'a' .. ledger)
    if not (marks[1] or marks[2]) then redis.call('HINCRBY', key, late, text(spent)) end
  end
  return spent
end

local function spend_late(first, call)
  for n, claim in ipairs(call[3]) do
    local key, spent = KEYS[first + n], call[4][n]
    if claim[3] == BUDGET then
      if call[5] then spent = late_by_ledger(key, text(claim[7]), call, spent) end
      if spent > 0 then spend(key, claim[7], claim[8], spent, claim[6]) end
    end
  end
end

local function settle(first, call)
  local verb, keep, claims, actuals, id = call[1], call[2], call[3], call[4], KEYS[first]
  local kept = redis.call('GET', id)
  if kept == '' then return {0} end
  if kept then
    local charges = cmsgpack.unpack(kept)
    for n, claim in ipairs(claims) do
      local charge = charges[n + 1]
      if charge >= 0 then
        local actual = math.max(0, actuals[n])
        KINDS[claim[3]].settle(KEYS[first + n], claim, charge, charges[1], actual, id)
      end
    end
  elseif verb ~= 'again' then
    spend_late(first, call)
  end
  if verb == 'late' or verb == 'whole' then
    redis.call('SET', id, '', 'PX', keep)
  elseif kept then
    redis.call('DEL', id)
  end
  return {kept and 1 or 0}
end

local function renew(first, call)
  local id = KEYS[first]
  local kept = redis.call('GET', id)
  if not kept or kept == '' then return {0} end
  local charges = cmsgpack.unpack(kept)
  for n, claim in ipairs(call[3]) do
    if claim[3] == CONCURRENCY and charges[n + 1] >= 0 then lease(KEYS[first + n], claim, id) end
  end
  return {1}
end

local function bill(key, call)
  local state, keep, owner, dead = call[1], call[2], call[3], call[4]
  local kept = redis.call('GET', key)
  local run = string.match(kept or '', '^charged (%x+) ')
  local is_free = not kept or kept == 'charged ' .. owner
  for _, each in ipairs(dead) do is_free = is_free or run == each end
  if is_free then redis.call('SET', key, state .. ' ' .. owner, 'PX', keep) end
  return {(is_free or kept == 'booked ' .. owner) and 1 or 0}
end

local first, replies = 1, {}
for n = 2, #ARGV do
  local call = cjson.decode(ARGV[n])
  if call[1] == 'charged' or call[1] == 'booked' then
    if #ARGV > 2 then return redis.error_reply('ERR a bill must be the only call') end
    return {bill(KEYS[1], call)}
  end
  if call[1] == 'admit' or call[1] == 'read' then
    replies[n - 1] = admit(first, call, call[1] == 'admit')
  elseif call[1] == 'renew' then
    replies[n - 1] = renew(first, call)
  else
    replies[n - 1] = settle(first, call)
  end
  first = first + 1 + #call[3]
end
return replies
