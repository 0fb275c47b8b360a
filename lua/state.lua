-- The value of a key: docs/STATE.md. A section is read into a table; numbers are checked before they are used.
--
-- `value` is a window onto the key's value: `skip` bytes stand before it, `size` is how long the whole is. Most
-- values are short and all in it. Of a long one only what is needed is read and written.

--@block refuse
return redis.error_reply('WEIRSTATE key "' .. sub(key, 1, 200)
    .. '" holds a value that is not weir\'s, or is damaged; use another key or delete it')

-- The first window. GETRANGE gives '' for a key that is not there.
--@block fetch
local value, skip, size = redis.pcall('GETRANGE', key, '0', '1065'), 0, 0
if value == '' then
    if redis.call('EXISTS', key) == 0 then value = false end
elseif type(value) == 'string' then
    size = #value == 1066 and redis.call('STRLEN', key) or #value
end

-- Bytes FROM to TO of the key's value, the first being 1.
--@block bytes RET FROM TO
RET = redis.call('GETRANGE', key, format('%d', FROM - 1), format('%d', TO - 1))

-- Makes sure that the whole value is in the window.
--@block whole
if #value < size then value, skip = redis.call('GET', key), 0 end

-- Reads `value` into `sections`, in their order, and finds the marks behind them: where, and the latest. A refusal of
-- the server itself is passed on.
--@block walk
if type(value) == 'table' and sub(value.err, 1, 9) ~= 'WRONGTYPE' then return value end
if type(value) ~= 'string' or size < 3 or sub(value, 1, 2) ~= '\247\1' then
    --@use state.refuse
end
local pos = 3
while pos <= size do
    if pos + 39 > skip + #value and skip + #value < size then
        --@use state.bytes value | pos | pos + 1065
        skip = pos - 1
    end
    local at_hand, left = pos - skip, size - pos + 1
    local kind = byte(value, at_hand)
    if kind == MARKS_KIND then
        local n = 0
        if left >= 23 then marks_until, n = unpack('<I7I2', value, at_hand + 1) end
        if n < 1 or n > 64 or left ~= 10 + n * 13 or marks_until > EXACT_MAX then
            --@use state.refuse
        end
        marks_pos = pos
        break
    end
    local period, extra, fresh, at, amount, before, stored, capacity, head, len, sum, last, bytes, count
    local sound = false
    if kind <= LEAKY_BUCKET then
        if left >= 26 then
            local tick
            period, count, at, amount = unpack('<I6I5I7I7', value, at_hand + 1)
            tick = (period <= MINUTE or kind == STEPPED) and 1 or 1000
            if count >= 1 and amount >= 1 and amount <= EXACT_MAX and at * tick <= EXACT_MAX then
                sound, bytes = true, 26
                if kind == STEPPED then
                    --@use stepped.fresh count
                else
                    --@use bucket.fresh count
                end
            end
        end
    elseif kind <= FROM_FIRST then
        if left >= 21 then
            period, at, amount = unpack('<I6I7I7', value, at_hand + 1)
            sound, bytes = amount >= 1 and amount <= EXACT_MAX and at <= EXACT_MAX, 21
            --@use fixed_window.fresh
        end
    elseif kind == CALENDAR then
        if left >= 27 then
            period, extra, at, amount = unpack('<I6I6I7I7', value, at_hand + 1)
            sound, bytes = amount >= 1 and amount <= EXACT_MAX, 27
            --@use calendar.check
            if sound then
                --@use calendar.ends sound
            end
            --@use calendar.fresh
        end
    elseif kind == SLIDING_COUNTER then
        if left >= 22 then
            period, at, before, amount = unpack('<I6I7I4I4', value, at_hand + 1)
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
    elseif kind <= SLIDING_WINDOW or kind == CONCURRENT then
        if left >= 40 then
            local zero, whole = nil, 2
            period, extra, capacity, head, len, at, sum, zero = unpack('<I6I6I4I4I4I7I7I1', value, at_hand + 1)
            bytes = 40 + capacity * 16
            while whole < capacity and whole < 262142 do whole = whole * 2 + 2 end
            sound = bytes <= left and capacity == whole
                and head < capacity and len >= 1 and len <= capacity and len <= CELLS_MAX
                and sum >= 1 and sum <= EXACT_MAX
                and at <= EXACT_MAX and zero == 0 and (extra > 0) == (kind == SLIDING_WINDOW)
            if sound then
                local n
                local base = at_hand + 40
                if kind == CONCURRENT then
                    --@use ring.peep last, n | '<I8I3' | (head + len - 1) % capacity
                    n = n % LEASE_UNIT
                    sound = last <= at + DURATION_MAX
                    --@use concurrent.fresh
                else
                    --@use ring.peep last, n | '<I8I8' | (head + len - 1) % capacity
                    sound = last == at
                    --@use stamps.fresh
                end
                sound = sound and n >= 1 and n <= sum
            end
        end
    elseif kind <= WARMUP then
        if left >= 29 then
            period, fresh, at, stored = unpack('<I6I7I7d', value, at_hand + 1)
            sound, bytes = stored >= 0 and stored < 1e300 and at <= EXACT_MAX, 29
        end
    end
    if not sound or period < 1 or period > DURATION_MAX or #sections == 16 then
        --@use state.refuse
    end
    sections[#sections + 1] = {
        kind, period, extra, pos, bytes, fresh, at, amount, before, stored, capacity, head, len, sum, last,
        nil, false, false, count,
    }
    pos = pos + bytes
end

-- Finds the section of a limit.
--@block find
for i = 1, #sections do
    local s = sections[i]
    if s[S_KIND] == kind
        and (kind == CONCURRENT or (s[S_PERIOD] == period
            and (kind ~= SLIDING_WINDOW and kind ~= CALENDAR or s[S_EXTRA] == extra))) then
        section = s
        break
    end
end

-- A section's bytes.
--@block pack
if kind <= LEAKY_BUCKET then
    bytes = pack('<I1I6I5I7I7', kind, period, count, at, amount)
elseif kind <= FROM_FIRST then
    bytes = pack('<I1I6I7I7', kind, period, at, amount)
elseif kind == CALENDAR then
    bytes = pack('<I1I6I6I7I7', kind, period, extra, at, amount)
elseif kind == SLIDING_COUNTER then
    bytes = pack('<I1I6I7I4I4', kind, period, at, before, amount)
elseif kind == SMOOTH or kind == WARMUP then
    bytes = pack('<I1I6I7I7d', kind, period, fresh, at, stored)
else
    local precision = kind == SLIDING_WINDOW and extra or 0
    bytes = pack('<I1I6I6I4I4I4I7I7I1', kind, period, precision, capacity, head, len, at, sum, 0)
end

-- A changed state's bytes, for writing; of a ring in a long value only its header and the cell that changed. What
-- was added, went or changed its size makes the holder be `rebuilt`.
--@block keep
local bytes = false
if present then
    --@use state.pack
    --@use KEEP_CELLS
    if fresh > holder.fresh then holder.fresh = fresh end
end
holder.changed = true
if not section then
    holder.rebuilt = true
    if bytes then holder.added[#holder.added + 1] = bytes end
else
    section[S_BYTES] = bytes
    if not section[S_CELL] and #(bytes or '') ~= section[S_SIZE] then holder.rebuilt = true end
end

--@block keep_cells
if capacity > 0 then
    if section and not cells and holder.size > SHORT_VALUE then
        section[S_CELL], section[S_CELL_AT] = cell, section[S_POS] + 40 + place * 16
    else
        --@use ring.body
    end
end

--@block keep_none

-- The whole value, `parts` of it: sections that changed (their bytes: what they are now, false: gone) in their
-- places, added ones behind. `holder.fresh` becomes the latest of all.
--@block compose
local value, skip, size, added = holder.value, holder.skip, holder.size, holder.added
if value then
    --@use state.whole
end
local parts, live = {'\247\1', nil, nil}, 0
for i = 1, #holder.sections do
    local s = holder.sections[i]
    local bytes, pos = s[S_BYTES], s[S_POS]
    if bytes == nil then
        if #added == 0 or now < s[S_FRESH] then bytes = sub(value, pos, pos + s[S_SIZE] - 1) end
    elseif s[S_CELL] then
        bytes = bytes .. sub(value, pos + 40, s[S_CELL_AT] - 1) .. s[S_CELL]
            .. sub(value, s[S_CELL_AT] + 16, pos + s[S_SIZE] - 1)
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
    return redis.error_reply('WEIRFULL the key holds 16 live limits already; use another key')
end
if holder.marks or (holder.marks_pos and (now < holder.marks_until or not (#added > 0 or live == 0))) then
    live = live + 1
    parts[live + 1] = holder.marks or sub(value, holder.marks_pos, size)
end

-- Writes a changed holder whose value, if it is written as a whole, was composed before.
--@block write PARTS LIVE
local fresh = holder.fresh
if holder.marks_until > fresh then fresh = holder.marks_until end
for i = 1, #holder.sections do
    local s = holder.sections[i]
    if s[S_BYTES] == nil and s[S_FRESH] > fresh then fresh = s[S_FRESH] end
end
if LIVE == 0 then
    redis.call('DEL', key)
elseif PARTS then
    --@use clock.set key | table.concat(PARTS)
else
    for i = 1, #holder.sections do
        local s = holder.sections[i]
        if s[S_BYTES] then redis.call('SETRANGE', key, format('%d', s[S_POS] - 1), s[S_BYTES]) end
        if s[S_CELL] then redis.call('SETRANGE', key, format('%d', s[S_CELL_AT] - 1), s[S_CELL]) end
    end
    --@use clock.expire key
end

-- Receipts that were settled: 13 bytes each, their name on this state and until when it is remembered.

-- Whether the receipt `named` was settled on this state before; `name` is what it is called here.
--@block marked
name = redis.sha1hex(format('%s:%.0f:%.0f:%.0f', named, kind, period,
    (kind == SLIDING_WINDOW or kind == CALENDAR) and extra or 0))
name = pack('<I6', tonumber(sub(name, 1, 12), 16))
if holder.marks_pos and not holder.old then
    local whole
    --@use state.bytes whole | holder.marks_pos + 10 | holder.size
    holder.old = whole
end
local p = holder.old and find(holder.old, name, 1, true)
while p and not settled do
    settled = p % 13 == 1 and unpack('<I7', holder.old, p + 6) > now
    p = find(holder.old, name, p + 1, true)
end

-- Remembers it until `lapse`, an hour at most.
--@block mark
if lapse > now + HOUR then lapse = now + HOUR end
if lapse > now then holder.new = (holder.new or '') .. mark .. pack('<I7', lapse) end

-- The marks that count, and the new ones, as they are to be written.
--@block marks
local old, new, kept, latest = holder.old or '', holder.new, '', 0
for p = 1, #old, 13 do
    if unpack('<I7', old, p + 6) > now then kept = kept .. sub(old, p, p + 12) end
end
local over = #kept + #new - 64 * 13
if over > 0 then kept = sub(kept, over + 1) end
kept = kept .. new
for p = 1, #kept, 13 do
    local lapse = unpack('<I7', kept, p + 6)
    if lapse > latest then latest = lapse end
end
if latest > EXACT_MAX then latest = EXACT_MAX end -- a damaged mark may say any time
holder.marks, holder.marks_until = pack('<I1I7I2', MARKS_KIND, latest, #kept / 13) .. kept, latest
holder.changed, holder.rebuilt = true, true
