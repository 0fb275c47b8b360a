-- A lean script's short way for buckets: a value of this one section, read and written whole. A mark is
-- magic, version and kind in three bytes.

--@block locals
local tick, ticks, cap
local present, fresh, at, amount = false, 0, 0, 0

--@block fetch
local value, skip, size = redis.pcall('GET', key), 0, nil

--@block quick
if #value == 28 then
    local mark, same, written, when, debt = unpack('<I3I6I5I7I7', value)
    if mark == MARK and same == period and written >= 1 and debt >= 1 and debt <= EXACT_MAX
        and when * tick <= EXACT_MAX then
        present, at, amount = true, when, debt
        --@use LOADER.fresh written
    end
end

--@block long
amount = section[S_AMOUNT]

--@block none

--@block write
--@use clock.set key | pack('<I3I6I5I7I7', MARK, period, count, at, amount)
