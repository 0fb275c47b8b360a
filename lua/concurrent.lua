-- Concurrency: a sliding log whose entries can be released early. A cell is a lease: its expiry, then 47 bits
-- of id above 17 bits of slots, read as three bytes and five. `period` is the lease's length, `at` the newest
-- acquire or renewal, `last` the last expiry.

--@block derive

--@block check
sound = sound and count <= LOG_COUNT_MAX

--@block fresh
fresh = last
if fresh > EXACT_MAX then fresh = EXACT_MAX end

--@block absent
if now >= fresh or (at - now > MINUTE and at - now > period) then present, len, sum = false, 0, 0 end

--@block load
t = now
if present and at > t then t = at end
local previous = 0
while len > 0 do
    local expiry, n
    --@use ring.read expiry, n | '<I8I3' | head
    n = n % LEASE_UNIT
    --@use ring.check expiry | n | sum | len - 1 | previous | at + DURATION_MAX
    if expiry > t then break end
    sum, len, head, previous = sum - n, len - 1, head + 1, expiry
    if head == capacity then head = 0 end
end

-- Every cell, before any of them may change.
--@block check_all
--@use ring.whole
local left, previous = sum, 0
for i = 0, len - 1 do
    local expiry, n = unpack('<I8I3', value, base + (head + i) % capacity * 16)
    n = n % LEASE_UNIT
    --@use ring.check expiry | n | left | len - 1 - i | previous | at + DURATION_MAX
    left, previous = left - n, expiry
end

--@block judge
limit = count
local excess = (sum - count) + cost
if excess <= 0 then
    allowed = 1
elseif cost > count then
    retry = -1
else
    local i, left, previous, expiry, n = 0, sum, 0
    repeat
        --@use ring.read expiry, n | '<I8I3' | (head + i) % capacity
        n = n % LEASE_UNIT
        --@use ring.check expiry | n | left | len - 1 - i | previous | at + DURATION_MAX
        excess, i, left, previous = excess - n, i + 1, left - n, expiry
    until excess <= 0
    retry = expiry - now
end

-- Leases may differ in length, so a new one may belong before others.
--@block charge ID
local expiry, high = t + period, ID / 128
high = high - high % 1
cell = pack('<I8I3I5', expiry, ID % 128 * LEASE_UNIT + cost, high)
local i = len
while i > 0 do
    local other
    --@use ring.read other | '<I8' | (head + i - 1) % capacity
    if other <= expiry then break end
    i = i - 1
end
if i == len then
    --@use ring.append
    last = expiry
else
    --@use ring.whole
    --@use ring.line
    if len == capacity then
        capacity, head = capacity * 2 + 2, 0
        line = line .. rep('\0', (capacity - len) * 16)
    end
    line = sub(line, 1, i * 16) .. cell .. sub(line, i * 16 + 1, len * 16) .. sub(line, len * 16 + 17)
    --@use ring.places
    len = len + 1
end
sum, at, present = sum + cost, t, true

--@block report
remaining = sum < count and count - sum or 0
if len > 0 then reset = last - now end

-- Finds lease `id` in `line`: `found` is its index, `slots` what it holds. Id 0 is nobody's.
--@block find
local high = id / 128
high = high - high % 1
local mark, from, found, slots = pack('<I5', high), 1
while id > 0 and not found do
    local p = find(line, mark, from, true)
    if not p or p > len * 16 then break end
    local low = p % 16 == 12 and unpack('<I3', line, p - 3)
    if low and (low - low % LEASE_UNIT) / LEASE_UNIT == id % 128 then found, slots = (p - 12) / 16, low % LEASE_UNIT end
    from = p + 1
end

--@block renew
if len > 0 then
    --@use ring.line
    --@use concurrent.find
    if found then
        local expiry = t + period
        cell = pack('<I8', expiry) .. sub(line, found * 16 + 9, found * 16 + 16)
        --@use ring.take_out found
        local i = len
        while i > 0 and unpack('<I8', line, i * 16 - 15) > expiry do i = i - 1 end
        line = sub(line, 1, i * 16) .. cell .. sub(line, i * 16 + 1, len * 16) .. sub(line, len * 16 + 17)
        --@use ring.places
        len = len + 1
        at, last, changed = t, unpack('<I8', line, len * 16 - 15), true
    end
end

--@block release
if len > 0 then
    --@use ring.line
    --@use concurrent.find
    if found then
        sum = sum - slots
        --@use ring.take_out found
        --@use ring.places
        present, changed = len > 0, true
        if present then last = unpack('<I8', line, len * 16 - 15) end
    end
end

--@block salt RET
RET = sum
