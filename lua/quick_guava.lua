-- A lean script's short way for smooth and warmup: see quick_bucket.lua.

--@block locals
local stable, top, cooldown, threshold, slope
local present, fresh, at, stored = false, 0, 0, 0

--@block fetch
local value, skip, size = redis.pcall('GET', key), 0, nil

--@block quick
if #value == 31 then
    local mark, same, gone, free, saved = unpack('<I3I6I7I7d', value)
    if mark == MARK and same == period and saved >= 0 and saved < 1e300 and free <= EXACT_MAX then
        present, fresh, at, stored = true, gone, free, saved
    end
end

--@block long
stored = section[S_STORED]

--@block none

--@block write
--@use clock.set key | pack('<I3I6I7I7d', MARK, period, fresh, at, stored)
