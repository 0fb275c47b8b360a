-- A lean script's short way for sliding counters: see quick_bucket.lua.

--@block locals
local grain, parts, weight
local present, fresh, at, before, amount = false, 0, 0, 0, 0

--@block fetch
local value, skip, size = redis.pcall('GET', key), 0, nil

--@block quick
if #value == 24 then
    local mark, same, number, previous, current = unpack('<I3I6I7I4I4', value)
    if mark == MARK and same == period and previous <= COUNTER_MAX and current <= COUNTER_MAX
        and previous + current >= 1 and number <= EXACT_MAX / period then
        present, at, before, amount = true, number, previous, current
        --@use LOADER.fresh
    end
end

--@block long
before, amount = section[S_BEFORE], section[S_AMOUNT]

--@block none

--@block write
--@use clock.set key | pack('<I3I6I7I4I4', MARK, period, at, before, amount)
