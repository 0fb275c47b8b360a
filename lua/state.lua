-- The value of a key: docs/STATE.md. A section is read into a table; numbers are checked before they are used.

--@block refuse
return redis.error_reply('WEIRSTATE key "' .. sub(key, 1, 200)
    .. '" holds a value that is not weir\'s, or is damaged; use another key or delete it')

-- Reads `value` into `sections`, in their order. A refusal of the server itself is passed on.
--@block walk
if type(value) == 'table' and sub(value.err, 1, 9) ~= 'WRONGTYPE' then return value end
if type(value) ~= 'string' or #value < 3 or sub(value, 1, 2) ~= '\247\1' then
    --@use state.refuse
end
local pos, size = 3, #value
while pos <= size do
    local kind, left = byte(value, pos), size - pos + 1
    local period, extra, fresh, at, amount, before, stored, capacity, head, len, sum, last, bytes
    local sound = false
    if kind <= 2 then
        if left >= 26 then
            local count, tick
            period, count, at, amount = unpack('<I6I5I7I7', value, pos + 1)
            tick = (period <= MINUTE or kind == 1) and 1 or 1000
            if count >= 1 and amount >= 1 and amount <= EXACT_MAX and at * tick <= EXACT_MAX then
                sound, bytes = true, 26
                if kind == 1 then
                    --@use stepped.fresh count
                else
                    --@use bucket.fresh count
                end
            end
        end
    elseif kind <= 4 then
        if left >= 21 then
            period, at, amount = unpack('<I6I7I7', value, pos + 1)
            sound, bytes = amount >= 1 and amount <= EXACT_MAX and at <= EXACT_MAX, 21
            --@use fixed_window.fresh
        end
    elseif kind == 7 then
        if left >= 22 then
            period, at, before, amount = unpack('<I6I7I4I4', value, pos + 1)
            bytes = 22
            if period >= 1 and period <= DURATION_MAX then
                local grain, parts
                --@use sliding_counter.derive
                local most = EXACT_MAX / period
                sound = at <= most and before <= COUNTER_MAX and amount <= COUNTER_MAX
                    and before + amount >= 1
                --@use sliding_counter.fresh
            end
        end
    elseif kind <= 6 or kind == 10 then
        if left >= 40 then
            local zero, whole = nil, 2
            period, extra, capacity, head, len, at, sum, zero = unpack('<I6I6I4I4I4I7I7I1', value, pos + 1)
            bytes = 40 + capacity * 16
            while whole < capacity and whole < 262142 do whole = whole * 2 + 2 end
            sound = bytes <= left and capacity == whole
                and head < capacity and len >= 1 and len <= capacity and len <= CELLS_MAX
                and sum >= 1 and sum <= EXACT_MAX
                and at <= EXACT_MAX and zero == 0 and (extra > 0) == (kind == 6)
            if sound then
                local n
                last, n = unpack('<I8I8', value, pos + 40 + (head + len - 1) % capacity * 16)
                if kind == 10 then
                    n = unpack('<I3', value, pos + 48 + (head + len - 1) % capacity * 16) % 131072
                    sound = last <= at + DURATION_MAX
                    --@use concurrent.fresh
                else
                    sound = last == at
                    --@use stamps.fresh
                end
                sound = sound and n >= 1 and n <= sum
            end
        end
    elseif kind <= 9 then
        if left >= 29 then
            period, fresh, at, stored = unpack('<I6I7I7d', value, pos + 1)
            sound, bytes = stored >= 0 and stored < 1e300 and at <= EXACT_MAX, 29
        end
    end
    if not sound or period < 1 or period > DURATION_MAX or #sections == 16 then
        --@use state.refuse
    end
    sections[#sections + 1] = {
        kind = kind, period = period, extra = extra, pos = pos, size = bytes, fresh = fresh,
        at = at, amount = amount, before = before, stored = stored,
        capacity = capacity, head = head, len = len, sum = sum, last = last,
    }
    pos = pos + bytes
end

-- Finds the section of a limit.
--@block find
for i = 1, #sections do
    local s = sections[i]
    if s.kind == kind and (kind == 10 or (s.period == period and (kind ~= 6 or s.extra == extra))) then
        section = s
        break
    end
end

-- A section's bytes.
--@block pack
if kind <= 2 then
    bytes = pack('<I1I6I5I7I7', kind, period, count, at, amount)
elseif kind <= 4 then
    bytes = pack('<I1I6I7I7', kind, period, at, amount)
elseif kind == 7 then
    bytes = pack('<I1I6I7I4I4', kind, period, at, before, amount)
elseif kind == 8 or kind == 9 then
    bytes = pack('<I1I6I7I7d', kind, period, fresh, at, stored)
else
    local precision = kind == 6 and extra or 0
    bytes = pack('<I1I6I6I4I4I4I7I7I1', kind, period, precision, capacity, head, len, at, sum, 0)
end

-- The value anew: sections that changed (`bytes`: what they are now, false: gone) in their places, `added`
-- ones behind. `fresh` becomes the latest of all.
--@block compose
local parts, live = {'\247\1'}, 0
for i = 1, #sections do
    local s = sections[i]
    local bytes = s.bytes
    if bytes == nil then
        if s.fresh > fresh then fresh = s.fresh end
        if #added == 0 or now < s.fresh then bytes = sub(value, s.pos, s.pos + s.size - 1) end
    end
    if bytes then
        live = live + 1
        parts[live + 1] = bytes
    end
end
for i = 1, #added do
    live = live + 1
    parts[live + 1] = added[i]
end
if live > 16 then
    return redis.error_reply('ERR the key holds 16 live limits already; use another key')
end
