-- Fixed windows: aligned to the epoch (fixed-window), or opened by their first charged request (from-first). `at` is
-- the start, `amount` the count.

--@block derive

--@block check

--@block fresh
fresh = at + period
if fresh > EXACT_MAX then fresh = EXACT_MAX end

--@block absent
if now >= fresh or (at - now > MINUTE and at - now > period) then present = false end

--@block load
local here = now
if present and at > here then here = at end
if not present or here >= at + period then
    present = false
    amount = 0
    at = kind == FROM_FIRST and here or here - here % period
end

--@block judge
limit = count
if amount + cost <= count then
    allowed = 1
elseif cost > count then
    retry = -1
else
    retry = (at - now) + period
end

--@block charge
amount = amount + cost
present = true

--@block report
remaining = amount < count and count - amount or 0
reset = amount > 0 and (at - now) + period or 0

-- Where the window of t0 is gone, a refund is void and a surcharge is charged now.
--@block settle
if change > 0 or (present and t0 >= at and t0 < at + period) then
    amount = amount + change
    if amount > EXACT_MAX then amount = EXACT_MAX elseif amount < 0 then amount = 0 end
    present = amount > 0
    changed = true
end

-- What no two charges at one instant have in common.
--@block salt RET
RET = amount
