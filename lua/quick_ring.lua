-- A lean script's short way for rings: see quick_bucket.lua. Of a long one only the header and the cell that
-- changed are written.

--@block locals
local present, fresh, at = false, 0, 0
local base, capacity, head, len, sum, last, t = 1, 0, 0, 0, 0, 0, 0
local cells, place, cell

-- GETRANGE gives '' for a key that is not there. No ring's value is as long as what is asked for: one that
-- fills it is `long`, and goes on being read cell by cell, or else is not ours alone.
--@block fetch
local value, long, size = redis.pcall('GETRANGE', key, '0', '1065'), false
if value == '' and redis.call('EXISTS', key) == 0 then value = false end

--@block quick
size = #value == 1066 and redis.call('STRLEN', key) or #value
if size >= 74 then
    local mark, same, precision, room, first, n, newest, total, zero = unpack('<I3I6I6I4I4I4I7I7I1', value)
    local whole = 2
    while whole < room and whole < 262142 do whole = whole * 2 + 2 end
    if mark == MARK and (same == period or kind == 10 and same >= 1 and same <= DURATION_MAX)
        and precision == PRECISION and size == 42 + room * 16 and room == whole
        and first < room and n >= 1 and n <= room and n <= CELLS_MAX and total >= 1 and total <= EXACT_MAX
        and newest <= EXACT_MAX and zero == 0 then
        long = size > 1066
        present, at, base, capacity, head, len, sum = true, newest, 43, room, first, n, total
        --@use RING_FRESH
    elseif size > 1065 then
        value = redis.call('GET', key)
    end
end

-- A cell of a long ring is fetched by itself.
--@block read RETS FORMAT PLACE
if long then
    local from = base + (PLACE) * 16 - 1
    RETS = unpack(FORMAT, redis.call('GETRANGE', key, format('%d', from), format('%d', from + 15)))
else
    RETS = unpack(FORMAT, value, base + (PLACE) * 16)
end

--@block whole
if long then value, long = redis.call('GET', key), false end

--@block long
base, capacity, head, len, sum = section.pos + 40, section.capacity, section.head, section.len, section.sum
last = section.last

--@block none
value = ''

--@block write
if not cells and (long or #value > SHORT_VALUE) then
    local header = pack('<I1I6I6I4I4I4I7I7I1', kind, period, PRECISION, capacity, head, len, at, sum, 0)
    redis.call('SETRANGE', key, '2', header)
    redis.call('SETRANGE', key, format('%.0f', base + place * 16 - 1), cell)
    --@use clock.expire key
else
    local bytes = pack('<I3I6I6I4I4I4I7I7I1', MARK, period, PRECISION, capacity, head, len, at, sum, 0)
    --@use ring.body
    --@use clock.set key | bytes
end

--@block body
--@use ring.body

--@block fresh_stamps
local n
--@use READ last, n | '<I8I8' | (head + len - 1) % capacity
if last ~= at or n < 1 or n > sum then
    --@use state.refuse
end
--@use stamps.fresh

--@block fresh_leases
local n
--@use READ last, n | '<I8I3' | (head + len - 1) % capacity
n = n % 131072
if last > at + DURATION_MAX or n < 1 or n > sum then
    --@use state.refuse
end
--@use concurrent.fresh
