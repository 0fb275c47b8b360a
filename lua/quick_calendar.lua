-- A lean script's short way for windows of the calendar: see quick_bucket.lua.

--@block locals
local present, fresh, at, amount = false, 0, 0, 0

--@block fetch
local value, skip, size = redis.pcall('GET', key), 0, nil

--@block quick
if #value == 29 then
    local mark, same, calendar, finish, n = unpack('<I3I6I6I7I7', value)
    if mark == MARK and same == period and calendar == extra and n >= 1 and n <= EXACT_MAX then
        at = finish
        --@use calendar.ends present
        amount = n
        --@use LOADER.fresh
    end
end

--@block long
amount = section[S_AMOUNT]

--@block none

--@block write
--@use clock.set key | pack('<I3I6I6I7I7', MARK, period, extra, at, amount)
