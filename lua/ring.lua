-- Cells in order of their stamps: what log, window and leases are made of. `base` is where place 0
-- stands in `value`; cell i stands at place (head + i) mod capacity. A change leaves its bytes in
-- `cell` for `place`, or all places again in `cells`.

-- Reads a cell. If it is not in the window, the window moves there: neighbours are often next.
--@block read RETS FORMAT PLACE
local where = base + (PLACE) * 16
if where < 1 or where + 15 > #value then
    skip, base = skip + where - 1, base - where + 1
    --@use state.bytes value | skip + 1 | skip + SHORT_VALUE
    where = 1
end
RETS = unpack(FORMAT, value, where)

-- The same, but leaves the window where it is.
--@block peep RETS FORMAT PLACE
local where = base + (PLACE) * 16
if where > 0 and where + 15 <= #value then
    RETS = unpack(FORMAT, value, where)
else
    local bytes
    --@use state.bytes bytes | skip + where | skip + where + 15
    RETS = unpack(FORMAT, bytes)
end

-- Makes sure that all places are in the window.
--@block whole
if base < 1 or base + capacity * 16 - 1 > #value then
    skip = skip + base - 1
    base = 1
    --@use state.bytes value | skip + 1 | skip + capacity * 16
end

-- All places in the cells' order, head first.
--@block line
local line = sub(value, base + head * 16, base + capacity * 16 - 1) .. sub(value, base, base + head * 16 - 1)

-- Back from the cells' order to places.
--@block places
cells = sub(line, (capacity - head) * 16 + 1) .. sub(line, 1, (capacity - head) * 16)

-- Puts `cell` behind the last, moving a full ring to the next capacity.
--@block append
if len < capacity then
    place = (head + len) % capacity
else
    --@use ring.whole
    --@use ring.line
    capacity, head = capacity * 2 + 2, 0
    cells = line .. cell .. rep('\0', (capacity - len - 1) * 16)
end
len = len + 1

-- Takes cell I out of `line`; the last place keeps its bytes.
--@block take_out I
line = sub(line, 1, (I) * 16) .. sub(line, (I) * 16 + 17, len * 16) .. sub(line, len * 16 - 15)
len = len - 1

-- Puts the section's cells behind its header.
--@block body
if not cells then
    --@use ring.whole
    cells = sub(value, base, base + place * 16 - 1) .. cell
        .. sub(value, base + place * 16 + 16, base + capacity * 16 - 1)
end
bytes = bytes .. cells

-- Cells are checked when they are read. One holds 1 or more and leaves as much for each of the OTHERS behind it,
-- the last of them all that is LEFT of the sum; stamps do not fall, and none is newer than NEWEST.
--@block check STAMP N LEFT OTHERS BEFORE NEWEST
if N < 1 or N > LEFT - (OTHERS) or (OTHERS) == 0 and N ~= LEFT or STAMP < BEFORE or STAMP > NEWEST then
    --@use state.refuse
end
