-- A lean script's short way for rings: see quick_bucket.lua. Of a long one only the header and the cell that
-- changed are written.

--@block locals
local present, fresh, at = false, 0, 0
local base, capacity, head, len, sum, last, t = 1, 0, 0, 0, 0, 0, 0
local cells, place, cell

--@block fetch
--@use state.fetch

--@block quick
if size >= 74 then
    local mark, same, precision, room, first, n, newest, total, zero = unpack('<I3I6I6I4I4I4I7I7I1', value)
    local whole = 2
    while whole < room and whole < 262142 do whole = whole * 2 + 2 end
    if mark == MARK and (same == period or kind == CONCURRENT and same >= 1 and same <= DURATION_MAX)
        and precision == PRECISION and size == 42 + room * 16 and room == whole
        and first < room and n >= 1 and n <= room and n <= CELLS_MAX and total >= 1 and total <= EXACT_MAX
        and newest <= EXACT_MAX and zero == 0 then
        present, at, base, capacity, head, len, sum = true, newest, 43, room, first, n, total
        --@use RING_FRESH
    end
end

--@block long
base, capacity, head = section[S_POS] + 40 - skip, section[S_CAPACITY], section[S_HEAD]
len, sum, last = section[S_LEN], section[S_SUM], section[S_LAST]

--@block none
value = ''

--@block write
if not cells and size > SHORT_VALUE then
    local header = pack('<I1I6I6I4I4I4I7I7I1', kind, period, PRECISION, capacity, head, len, at, sum, 0)
    redis.call('SETRANGE', key, '2', header)
    redis.call('SETRANGE', key, format('%d', 42 + place * 16), cell)
    --@use clock.expire key
else
    local bytes = pack('<I3I6I6I4I4I4I7I7I1', MARK, period, PRECISION, capacity, head, len, at, sum, 0)
    --@use ring.body
    --@use clock.set key | bytes
end

--@block fresh_stamps
local n
--@use ring.peep last, n | '<I8I8' | (head + len - 1) % capacity
if last ~= at or n < 1 or n > sum then
    --@use state.refuse
end
--@use stamps.fresh

--@block fresh_leases
local n
--@use ring.peep last, n | '<I8I3' | (head + len - 1) % capacity
n = n % LEASE_UNIT
if last > at + DURATION_MAX or n < 1 or n > sum then
    --@use state.refuse
end
--@use concurrent.fresh
