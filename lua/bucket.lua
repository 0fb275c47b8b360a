-- What token bucket and leaky bucket share: debt in units, `ticks` units a token, `count` units earned a
-- tick. A tick is 1 µs for periods up to a minute, else 1 ms. After load `at` is the present tick.

--@block derive TOKENS
tick = period <= MINUTE and 1 or 1000
ticks = period / tick
cap = (TOKENS) * ticks

--@block check
sound = sound and burst >= 0 and burst <= COST_MAX and burst % 1 == 0 and ticks % 1 == 0 and cap < EXACT_MAX

-- From when on the stored state counts as absent, by the count it was written under.
--@block fresh COUNT
fresh = amount / COUNT
fresh = (at + (fresh + -fresh % 1)) * tick
if fresh > EXACT_MAX then fresh = EXACT_MAX end

-- The horizon is only worked out for a state that is ahead of the clock by more than a minute.
--@block absent
if now >= fresh then
    present = false
elseif at * tick - now > MINUTE then
    local refill = cap / count
    if at * tick - now > (refill + -refill % 1) * tick then present = false end
end

--@block load
local here = now / tick
here = here - here % 1
if present then
    if at > here then here = at end
    local earned = (here - at) * count
    if earned >= amount then amount = 0 else amount = amount - earned end
else
    amount = 0
end
at = here

-- When X more units have come: the order of the sums keeps them exact.
--@block units_in RET X
RET = X
if RET > 0 then
    RET = RET / count
    RET = (at * tick - now) + (RET + -RET % 1) * tick
    if RET < 0 then RET = 0 elseif RET > EXACT_MAX then RET = EXACT_MAX end
else
    RET = 0
end

-- How much longer than the wait a delay until X more units have come is. Of one that is told as 2^53, whole
-- ticks are taken off first.
--@block beyond_wait RET X
local late = delay - wait
if delay == EXACT_MAX and wait < EXACT_MAX then
    late = (X) / count
    late = (late + -late % 1) - (wait - wait % tick) / tick
    late = (at * tick - now - wait % tick) + late * tick
    if late > EXACT_MAX then late = EXACT_MAX end
end
if late > RET then RET = late end
delay = 0

--@block charge
amount = amount + cost * ticks
present = true

--@block report
remaining = (cap - amount) / ticks
remaining = remaining > 0 and remaining - remaining % 1 or 0
--@use bucket.units_in reset | amount

--@block settle
if change > 0 or present then
    amount = amount + change * ticks
    if amount > EXACT_MAX then amount = EXACT_MAX elseif amount < 0 then amount = 0 end
    present = amount > 0
    changed = true
end

-- What no two charges at one instant have in common.
--@block salt RET
RET = amount
