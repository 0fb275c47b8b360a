-- Token bucket: a burst at once, then the rate; with a wait, reservations served in order.

--@block derive
--@use bucket.derive burst

--@block check
--@use bucket.check
sound = sound and burst >= 1

--@block judge
limit = burst
if cost > burst then
    retry = -1
else
    local units = cost * ticks
    --@use bucket.units_in delay | (units - cap) + amount
    local beyond = (amount - EXACT_MAX) + units
    if delay <= wait and beyond <= 0 then
        allowed = 1
    else
        --@use bucket.units_in retry | beyond
        --@use bucket.beyond_wait retry | (units - cap) + amount
    end
end
