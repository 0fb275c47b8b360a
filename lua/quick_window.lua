-- A lean script's short way for fixed windows: see quick_bucket.lua.

--@block locals
local present, fresh, at, amount = false, 0, 0, 0

--@block fetch
local value, skip, size = redis.pcall('GET', key), 0, nil

--@block quick
if #value == 23 then
    local mark, same, start, n = unpack('<I3I6I7I7', value)
    if mark == MARK and same == period and n >= 1 and n <= EXACT_MAX and start <= EXACT_MAX then
        present, at, amount = true, start, n
        --@use LOADER.fresh
    end
end

--@block long
amount = section[S_AMOUNT]

--@block none

--@block write
--@use clock.set key | pack('<I3I6I7I7', MARK, period, at, amount)
