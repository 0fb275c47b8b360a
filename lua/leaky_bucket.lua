-- Leaky bucket, nginx's limit_req: burst+1 fit, and a request waits until what was before it has leaked
-- down to `extra` tokens. Its own cost never delays itself.

--@block derive
--@use bucket.derive burst + 1

--@block check
--@use bucket.check
sound = sound and extra >= 0 and extra <= burst and extra % 1 == 0 and (flags == 0 or flags == NODELAY)

--@block judge
limit = burst + 1
if cost > limit then
    retry = -1
else
    local missing = (cost * ticks - cap) + amount
    if flags == 0 then
        --@use bucket.units_in delay | amount - extra * ticks
    end
    if missing <= 0 and delay <= wait then
        allowed = 1
    else
        --@use bucket.units_in retry | missing
        --@use bucket.beyond_wait retry | amount - extra * ticks
    end
end
