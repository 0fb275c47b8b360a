-- Guava's RateLimiter (31.1), SmoothBursty and SmoothWarmingUp, operation for operation
-- in doubles. `at` is the next free time, `stored` the permits.

--@block derive
local pps = count * 1000000 / period
stable = 1000000 / pps
if kind == SMOOTH then
    top = extra / 1000000 * pps
    cooldown = stable
else
    local cold_interval = stable * (cold / 1000000)
    threshold = 0.5 * extra / stable
    top = threshold + 2 * extra / (stable + cold_interval)
    slope = (cold_interval - stable) / (top - threshold)
    cooldown = extra / top
end

--@block check
sound = sound and extra >= 1 and extra <= DURATION_MAX and extra % 1 == 0
    and (kind == SMOOTH or (cold > 1000000 and cold <= 1000000000 and cold % 1 == 0))

-- How long until a limiter left alone has saved all it can, rounded up.
--@block filling RET STORED
RET = (top - STORED) * cooldown
if RET >= EXACT_MAX then RET = EXACT_MAX else RET = RET + -RET % 1 end

-- A fresh warmup is full; a smooth one's savings are kept for another day.
--@block fresh
--@use guava.filling fresh | stored
fresh = at + fresh
if kind == SMOOTH then fresh = fresh + DAY end
if fresh > EXACT_MAX then fresh = EXACT_MAX end

--@block absent
if now >= fresh then present = false end

--@block load
if present then
    if stored > top then stored = top end
    local filling
    --@use guava.filling filling | stored
    if kind == SMOOTH then filling = filling + DAY end
    if now >= at + filling then present = false end
end
if not present then
    at = now
    stored = kind == SMOOTH and 0 or top
end

--@block judge
limit = 1
if top >= EXACT_MAX then limit = EXACT_MAX elseif top >= 1 then limit = top - top % 1 end
local ahead = at > now and at - now or 0
if ahead <= wait then
    allowed, delay = 1, ahead
else
    retry = ahead - wait
end

-- What was saved since the next free time.
--@block resync AT STORED
if now > AT then
    STORED = STORED + (now - AT) / cooldown
    if STORED > top then STORED = top end
    AT = now
end

-- A whole number towards zero, as Java casts, saturating.
--@block whole X
if X >= EXACT_MAX then X = EXACT_MAX else X = X - X % 1 end

--@block charge
--@use guava.resync at | stored
local spend = cost < stored and cost or stored
local rest = (cost - spend) * stable
--@use guava.whole rest
local time = 0
if kind == WARMUP then
    local left, above = spend, stored - threshold
    if above > 0 then
        local n = above < spend and above or spend
        time = n * ((stable + above * slope) + (stable + (above - n) * slope)) / 2
        --@use guava.whole time
        left = left - n
    end
    left = stable * left
    --@use guava.whole left
    time = time + left
end
at = at + (time + rest)
if at > EXACT_MAX then at = EXACT_MAX end
stored = stored - spend
present = true

--@block report
local free, saved, filling = at, stored
--@use guava.resync free | saved
remaining = saved
--@use guava.whole remaining
--@use guava.filling filling | saved
reset = (free - now) + filling
if reset < 0 then reset = 0 elseif reset > EXACT_MAX then reset = EXACT_MAX end

-- Brought up to now, then the next free time moves by the difference at the stable rate.
--@block settle
if change > 0 or present then
    --@use guava.resync at | stored
    local moved = change * stable
    if moved < 0 then
        moved = -moved
        --@use guava.whole moved
        moved = -moved
    else
        --@use guava.whole moved
    end
    at = at + moved
    if at < now then at = now end
    if at > EXACT_MAX then at = EXACT_MAX end
    present = true
    changed = true
end

--@block salt RET
RET = (at - now) * 16 + stored
RET = RET - RET % 1
