-- What sliding log and sliding window share: cells of (stamp, count), each counting whole while
-- t < stamp + period. They differ in how a charge joins the newest cell. `at` is the newest stamp, `t` the
-- clock or `at`, whichever is later.

--@block derive

--@block check

--@block fresh
fresh = at + period
if fresh > EXACT_MAX then fresh = EXACT_MAX end

--@block absent
if now >= fresh or (at - now > MINUTE and at - now > period) then present, len, sum = false, 0, 0 end

--@block load
t = now
if present and at > t then t = at end
local previous = 0
while len > 0 do
    local stamp, n
    --@use ring.read stamp, n | '<I8I8' | head
    --@use ring.check stamp | n | sum | len - 1 | previous | at
    if stamp + period > t then break end
    sum, len, head, previous = sum - n, len - 1, head + 1, stamp
    if head == capacity then head = 0 end
end

-- Every cell, before any of them may change.
--@block check_all
--@use ring.whole
local left, previous = sum, 0
for i = 0, len - 1 do
    local stamp, n = unpack('<I8I8', value, base + (head + i) % capacity * 16)
    --@use ring.check stamp | n | left | len - 1 - i | previous | at
    left, previous = left - n, stamp
end

-- Denied, it can go once enough of the oldest have gone.
--@block judge
limit = count
local excess = (sum - count) + cost
if excess <= 0 then
    allowed = 1
elseif cost > count then
    retry = -1
else
    local i, left, previous, stamp, n = 0, sum, 0
    repeat
        --@use ring.read stamp, n | '<I8I8' | (head + i) % capacity
        --@use ring.check stamp | n | left | len - 1 - i | previous | at
        excess, i, left, previous = excess - n, i + 1, left - n, stamp
    until excess <= 0
    retry = (stamp - now) + period
end

-- JOINS tells whether the newest cell, stamped `stamp`, takes this charge.
--@block charge JOINS
if len > 0 then
    local newest, stamp, n = (head + len - 1) % capacity, nil, nil
    --@use ring.read stamp, n | '<I8I8' | newest
    if JOINS then place, cell = newest, pack('<I8I8', t, n + cost) end
end
if not cell then
    cell = pack('<I8I8', t, cost)
    --@use ring.append
end
sum, at, present = sum + cost, t, true

--@block report
remaining = sum < count and count - sum or 0
if len > 0 then reset = (at - now) + period end

-- Corrects the oldest cell stamped t0 or later. Where there is none, a refund is void and a surcharge is
-- charged now; a log that settles have filled to the brim renews its newest cell instead of adding one.
--@block settle JOINS
local low, high = 0, len
while low < high do
    local middle = low + high
    middle = (middle - middle % 2) / 2
    local stamp = unpack('<I8', value, base + (head + middle) % capacity * 16)
    if stamp < t0 then low = middle + 1 else high = middle end
end
if change > EXACT_MAX - sum then change = EXACT_MAX - sum end
if low < len then
    place = (head + low) % capacity
    local stamp, n = unpack('<I8I8', value, base + place * 16)
    local count = n + change
    if count < 0 then count = 0 end
    sum = sum + (count - n)
    cell = pack('<I8I8', stamp, count)
    if count == 0 then
        --@use ring.line
        --@use ring.take_out low
        --@use ring.places
        if len > 0 then at = unpack('<I8', line, len * 16 - 15) end
    end
    present = len > 0
    changed = true
elseif change > 0 then
    local cost = change
    if len >= CELLS_MAX then
        place = (head + len - 1) % capacity
        local stamp, n = unpack('<I8I8', value, base + place * 16)
        cell = pack('<I8I8', t, n + cost)
        sum, at, present = sum + cost, t, true
    else
        --@use stamps.charge JOINS
    end
    changed = true
end

--@block salt RET
RET = sum
