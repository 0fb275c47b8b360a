-- Sliding counter: two aligned windows, the previous one weighed by its overlap, in `parts` parts of
-- `grain` µs, at most 2^20, so that every product stays exact. `at` is the number of the current
-- window, `before` the previous count, `amount` the current; load leaves the previous one's `weight`.

--@block derive
grain = period / 1048576
grain = grain + -grain % 1
parts = period / grain
parts = parts - parts % 1

--@block check
sound = sound and count <= COUNTER_COUNT_MAX

--@block fresh
fresh = (at + (amount > 0 and 2 or 1)) * period - grain + 1
if fresh > EXACT_MAX then fresh = EXACT_MAX end

--@block absent
local ahead = at * period - now
if now >= fresh or (ahead > MINUTE and ahead > 2 * period) then present = false end

--@block load
local here = now
if present and at * period > here then here = at * period end
local number = here / period
number = number - number % 1
if not present or number > at + 1 then
    before, amount = 0, 0
elseif number == at + 1 then
    before, amount = amount, 0
end
at = number
present = before > 0 or amount > 0
weight = (period - (here - at * period)) / grain
weight = weight - weight % 1
if weight > parts then weight = parts end

--@block judge
limit = count
if cost > count then
    retry = -1
elseif before * weight + amount * parts + cost * parts <= count * parts then
    allowed = 1
else
    local number, previous, room = at, before, count - cost - amount
    if room < 0 then number, previous, room = at + 1, amount, count - cost end
    local q = room * parts / previous
    retry = (number * period - now) + period - (q - q % 1 + 1) * grain + 1
end

--@block charge
amount = amount + cost
present = true

--@block report
remaining = (count * parts - (before * weight + amount * parts)) / parts
remaining = remaining > 0 and remaining - remaining % 1 or 0
if present then
    reset = ((at + (amount > 0 and 2 or 1)) * period - now) - grain + 1
    if reset < 0 then reset = 0 end
end

--@block settle
local number = t0 / period
number = number - number % 1
local gone = number < at - 1 or number > at
if change > 0 or (present and not gone) then
    if not gone and number == at - 1 then
        before = before + change
        if before > COUNTER_MAX then before = COUNTER_MAX elseif before < 0 then before = 0 end
    else
        amount = amount + change
        if amount > COUNTER_MAX then amount = COUNTER_MAX elseif amount < 0 then amount = 0 end
    end
    present = before > 0 or amount > 0
    changed = true
end

-- What no two charges at one instant have in common.
--@block salt RET
RET = amount
