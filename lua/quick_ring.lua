-- A lean script's short way for rings: see quick_bucket.lua. Of a long one only the header and the cell that
-- changed are written.

--@block locals
local present, fresh, at = false, 0, 0
local base, capacity, head, len, sum, last, t = 1, 0, 0, 0, 0, 0, 0
local cells, place, cell

--@block quick
if #value >= 74 then
    local mark, same, precision, room, first, n, newest, total, zero = unpack('<I3I6I6I4I4I4I7I7I1', value)
    local whole = 2
    while whole < room and whole < 262142 do whole = whole * 2 + 2 end
    if mark == MARK and (same == period or kind == 10 and same >= 1 and same <= DURATION_MAX)
        and precision == PRECISION and #value == 42 + room * 16 and room == whole
        and first < room and n >= 1 and n <= room and total >= 1 and total <= EXACT_MAX
        and newest <= EXACT_MAX and zero == 0 then
        present, at, base, capacity, head, len, sum = true, newest, 43, room, first, n, total
        --@use RING_FRESH
    end
end

--@block long
base, capacity, head, len, sum = section.pos + 40, section.capacity, section.head, section.len, section.sum
last = section.last

--@block none
value = ''

--@block write
if not cells and #value > SHORT_VALUE then
    redis.call('SETRANGE', key, '2', pack('<I1I6I6I4I4I4I7I7I1', kind, period, PRECISION, capacity, head, len, at, sum, 0))
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
--@use stamps.fresh

--@block fresh_leases
last = unpack('<I8', value, 43 + (head + len - 1) % capacity * 16)
--@use concurrent.fresh
