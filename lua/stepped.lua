-- Stepped token bucket: the whole count arrives at once every period. Whole tokens and microseconds: `at`
-- is the last step, `amount` what is still owed.

--@block derive
tick = 1

--@block check
local periods = burst / count
sound = sound and burst >= 1 and burst <= COST_MAX and burst % 1 == 0
    and (periods + -periods % 1) * period < EXACT_MAX

--@block fresh COUNT
fresh = amount / COUNT
fresh = at + (fresh + -fresh % 1) * period
if fresh > EXACT_MAX then fresh = EXACT_MAX end

--@block absent
if now >= fresh then
    present = false
elseif at - now > MINUTE then
    local refill = burst / count
    if at - now > (refill + -refill % 1) * period then present = false end
end

--@block load
local here = now
if present then
    if at > here then here = at end
    local steps = (here - at) / period
    steps = steps - steps % 1
    if steps * count >= amount then
        amount, at = 0, here
    else
        amount, at = amount - steps * count, at + steps * period
    end
else
    amount, at = 0, here
end

-- When X tokens have come; the last step alone may pass 2^53.
--@block tokens_in RET X
RET = X
if RET > 0 then
    RET = RET / count
    RET = ((at - now) + period) + (RET + -RET % 1 - 1) * period
    if RET > EXACT_MAX then RET = EXACT_MAX end
else
    RET = 0
end

--@block judge
limit = burst
if cost > burst then
    retry = -1
else
    --@use stepped.tokens_in delay | (cost - burst) + amount
    local beyond = (amount - EXACT_MAX) + cost
    if delay <= wait and beyond <= 0 then
        allowed = 1
    else
        --@use stepped.tokens_in retry | beyond
        local late = delay - wait
        if delay == EXACT_MAX then
            late = ((cost - burst) + amount) / count
            late = (late + -late % 1) - (wait - wait % period) / period - 2
            late = ((at - now) + (2 * period - wait % period)) + late * period
            if late > EXACT_MAX then late = EXACT_MAX end
        end
        if late > retry then retry = late end
        delay = 0
    end
end

--@block charge
amount = amount + cost
present = true

--@block report
remaining = amount < burst and burst - amount or 0
--@use stepped.tokens_in reset | amount

--@block settle
if change > 0 or present then
    amount = amount + change
    if amount > EXACT_MAX then amount = EXACT_MAX elseif amount < 0 then amount = 0 end
    present = amount > 0
    changed = true
end

-- What no two charges at one instant have in common.
--@block salt RET
RET = amount
