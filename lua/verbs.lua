-- The general script: every verb, several limits and keys in one atomic call. Nothing is written before
-- everything is judged. README.md says what the arguments are.
--
--   arguments ─► read each key ─► each limit: load, judge ─► charge all or none ─► write keys ─► reply

--@block main
local unpack, pack, tonumber = struct.unpack, struct.pack, tonumber
local sub, rep, byte, find, format = string.sub, string.rep, string.byte, string.find, string.format
--@use clock.now
--@use verbs.arguments
--@use verbs.read_keys
if verb == RESET then
    --@use verbs.reset
elseif verb == SHOW then
    --@use verbs.show
end
--@use verbs.limits
if judging then
    for pass = tells and 1 or 2, 2 do
        local charging = pass == 2 and all and verb ~= PEEK
        for i = 1, #ops do
            --@use verbs.charge_and_report
        end
        if pass == 1 then
            --@use verbs.grant
        end
    end
end
--@use verbs.write
--@use verbs.reply

-- verb, options, wait or receipt, lease.
--@block arguments
local verb, options = tonumber(ARGV[1]), tonumber(ARGV[2])
local wait_for, id = tonumber(ARGV[3]), tonumber(ARGV[4])
if not verb or not (verb >= TAKE and verb <= SHOW and verb % 1 == 0) then
    return redis.error_reply('ERR the first argument is the verb, a number from 0 to 7')
end
if #KEYS == 0 or #KEYS > 16 or (#KEYS > 1 and verb >= SETTLE and verb ~= RESET and verb ~= ACQUIRE) then
    return redis.error_reply('ERR take, peek, acquire and reset name 1 to 16 keys, the other verbs one')
end
local t0, c0, named
local tells, owns = false, false
if verb ~= RESET and verb ~= SHOW then
    if not options or not id or not (id >= 0 and id < 140737488355328 and id % 1 == 0) then
        return redis.error_reply(
            'ERR expected verb, options, wait or receipt, lease, then each key\'s limits')
    end
    tells, owns = options % 4 >= 2, options % 8 >= 4
    if verb == SETTLE then
        t0, c0 = string.match(ARGV[3], '^w1%-(%d+)%-(%d+)$')
        if not t0 then t0, c0, named = string.match(ARGV[3], '^w3%-(%d+)%-(%d+)%-(%d+)$') end
        t0, c0, named = tonumber(t0), tonumber(c0), tonumber(named)
        if not t0 or t0 >= EXACT_MAX or c0 > COST_MAX or (named and not (named >= 1 and named < 1099511627776)) then
            return redis.error_reply('ERR invalid receipt "' .. sub(ARGV[3], 1, 64)
                .. '": expected what the take replied')
        end
        if named then named = format('%.0f-%.0f-%.0f', t0, c0, named) end
    elseif verb <= PEEK or verb == ACQUIRE then
        if not wait_for or not (wait_for >= -2 and wait_for <= DURATION_MAX and wait_for % 1 == 0) then
            return redis.error_reply(
                'ERR wait is -1 (default), -2 (any) or whole microseconds up to 366 days')
        end
    end
end

-- Every key's value, read once however often it is named.
--@block read_keys
local held = {}
for i = 1, #KEYS do
    local key = KEYS[i]
    if not held[key] then
        local sections, marks_pos, marks_until = {nil, nil}, false, 0
        --@use state.fetch
        if value then
            --@use state.walk
        end
        held[key] = {
            key = key, value = value, skip = skip, size = size, sections = sections, added = {}, fresh = 0,
            changed = false, rebuilt = false, parts = false, live = false, marks = false, marks_pos = marks_pos,
            marks_until = marks_until, old = false, new = false,
        }
        held[#held + 1] = held[key]
    end
end

--@block reset
local gone = 0
for i = 1, #held do
    if held[i].value and redis.call('DEL', held[i].key) == 1 and #held[i].sections > 0 then gone = gone + 1 end
end
return gone

-- Every state of a key as names and numbers. What was spent is by the numbers that a state was last written under,
-- where it holds them.
--@block show
local key, shown = KEYS[1], {}
local names = {KIND_NAMES}
for i = 1, #held[1].sections do
    local section = held[1].sections[i]
    local kind, period, fresh, at = section[S_KIND], section[S_PERIOD], section[S_FRESH], section[S_AT]
    local amount, before, stored = section[S_AMOUNT] or 0, section[S_BEFORE] or 0, section[S_STORED] or 0
    if stored > EXACT_MAX then stored = EXACT_MAX end
    local value, skip, capacity, head = held[1].value, held[1].skip, section[S_CAPACITY], section[S_HEAD]
    local len, sum, base = section[S_LEN] or 0, section[S_SUM] or 0, section[S_POS] + 40 - held[1].skip
    local count, spent, present, t, tick = section[S_COUNT] or 0, amount, now < fresh, now, 1
    if kind == TOKEN_BUCKET or kind == LEAKY_BUCKET then
        tick = period <= MINUTE and 1 or 1000
        --@use bucket.load
        spent = amount / (period / tick)
        spent, at = spent + -spent % 1, section[S_AT] * tick
    elseif kind == STEPPED then
        --@use stepped.load
        spent, at = amount, section[S_AT]
    elseif kind == SLIDING_COUNTER then
        local grain, parts, weight
        --@use sliding_counter.derive
        --@use sliding_counter.load
        spent = (before * weight + amount * parts) / parts
        spent, at = spent + -spent % 1, section[S_AT] * period
    elseif kind == SLIDING_LOG or kind == SLIDING_WINDOW then
        if not present then len, sum = 0, 0 end
        --@use stamps.load
        spent = sum
    elseif kind == CONCURRENT then
        if not present then len, sum = 0, 0 end
        --@use concurrent.load
        spent = sum
    elseif kind == CALENDAR then
        local extra, start, finish = section[S_EXTRA], nil, nil
        --@use calendar.window start | finish | (at - 1)
        at = start
    end
    if at > EXACT_MAX then at = EXACT_MAX end
    if fresh > EXACT_MAX then fresh = EXACT_MAX end
    shown[i] = {
        'algorithm', names[kind + 1], 'period', period, 'precision', (kind == SLIDING_WINDOW or kind == CALENDAR) and section[S_EXTRA] or 0,
        'count', count,
        'spent', present and spent or 0, 'stored', stored, 'entries', len, 'at', at, 'fresh', fresh,
    }
end
return shown

-- For each key: cost, with LEAST its least, how many limits, and each limit's seven numbers, with OWN its own cost.
--@block limits
local asks, own_of, owned, floor, ceiling = {nil, nil}, {nil, nil}, 0, 0, COST_MAX
if tells then
    --@use verbs.budget
end
local ops, rows, from, limit_count, leased, holds = {nil, nil}, {nil, nil}, 5, 0, false, 0
local all, salt, left = true, 0, 0
local judging = verb <= PEEK or verb == ACQUIRE
for k = 1, #KEYS do
    local key = KEYS[k]
    local whole, least = tonumber(ARGV[from]), 0
    if not whole or not (whole >= 0 and whole <= COST_MAX and whole % 1 == 0) then
        return redis.error_reply('ERR a cost is a whole number from 0 to 10^12')
    end
    if tells then
        least, from = tonumber(ARGV[from + 1]), from + 1
        if not least or not (least >= 0 and least <= whole and least % 1 == 0) then
            return redis.error_reply('ERR a least is a whole number from 1 to the cost, or 0')
        end
        if least > 0 and judging and wait_for ~= -1 and wait_for ~= 0 then
            return redis.error_reply('ERR a request with a least cannot wait: leave out the least or the wait')
        end
        if least > 0 then least = floor end
    end
    local limits, holder = tonumber(ARGV[from + 1]), held[key]
    asks[k] = {whole, least, limits}
    if not limits or not (limits >= 1 and limit_count + limits <= 16 and limits % 1 == 0) then
        return redis.error_reply('ERR a request has 1 to 16 limits')
    end
    from = from + 2
    for j = 1, limits do
        --@use verbs.read_limit
        --@use verbs.load
        if judging then
            --@use verbs.judge
        elseif own == 0 or verb ~= SETTLE then
            --@use verbs.correct
        else
            ops[limit_count] = {holder, kind, period, extra}
        end
    end
end
if from ~= given + 1 then
    return redis.error_reply('ERR more arguments than limits')
end
if verb == SETTLE and owned == limit_count then
    return redis.error_reply('ERR limits with a cost of their own cannot be settled, and there is no other')
end
if verb == SETTLE and leased then
    return redis.error_reply('ERR concurrent limits cannot be settled: release the lease instead')
end
if verb >= ACQUIRE and not leased then
    return redis.error_reply('ERR there are no leases: none of the limits is concurrent')
end
if verb == ACQUIRE and id == 0 then
    return redis.error_reply('ERR an acquire names its lease: a random number of 47 bits, not 0')
end

--@block read_limit
local kind, count, period = tonumber(ARGV[from]), tonumber(ARGV[from + 1]), tonumber(ARGV[from + 2])
local burst, extra = tonumber(ARGV[from + 3]), tonumber(ARGV[from + 4])
local flags, cold = tonumber(ARGV[from + 5]), tonumber(ARGV[from + 6])
from = from + 7
local own = 0
if owns then own, from = tonumber(ARGV[from]), from + 1 end
if not (kind and count and period and burst and extra and flags and cold and own) or from > given + 1 then
    return redis.error_reply(owns and 'ERR a limit is eight numbers: kind count period burst extra flags cold cost'
        or 'ERR a limit is seven numbers: kind count period burst extra flags cold')
end
local sound = kind >= 0 and kind <= KIND_LAST and kind % 1 == 0
local tick, ticks, cap
--@use rule.check
if not sound then
elseif kind == TOKEN_BUCKET then
    --@use token_bucket.derive
    --@use token_bucket.check
elseif kind == STEPPED then
    --@use stepped.check
elseif kind == LEAKY_BUCKET then
    --@use leaky_bucket.derive
    --@use leaky_bucket.check
elseif kind == SLIDING_LOG then
    --@use sliding_log.check
elseif kind == SLIDING_WINDOW then
    --@use sliding_window.check
elseif kind == SLIDING_COUNTER then
    --@use sliding_counter.check
elseif kind == SMOOTH or kind == WARMUP then
    --@use guava.check
elseif kind == CONCURRENT then
    --@use concurrent.check
elseif kind == CALENDAR then
    --@use calendar.check
elseif kind ~= FIXED_WINDOW and kind ~= FROM_FIRST then
    sound = false -- a kind without branches here is refused, not taken for another
end
local shapes = kind == LEAKY_BUCKET or kind == SMOOTH or kind == WARMUP
if own ~= 0 then
    local most = kind <= STEPPED and burst or kind == LEAKY_BUCKET and burst + 1 or shapes and COST_MAX or count
    sound = sound and own >= 1 and own <= most and own % 1 == 0
    owned = owned + 1
end
limit_count = limit_count + 1
own_of[limit_count] = own
local cost = own ~= 0 and whole ~= 0 and own or least ~= 0 and least or whole
if not sound then
    return redis.error_reply('ERR limit ' .. limit_count
        .. ' is out of bounds; `weir lua --args LIMITS` prints good ones')
end
for i = 1, #ops do
    local other = ops[i]
    if other[O_HOLDER] == holder and other[O_KIND] == kind
        and (kind == CONCURRENT or (other[O_PERIOD] == period
            and (kind ~= SLIDING_WINDOW and kind ~= CALENDAR or other[O_EXTRA] == extra))) then
        return redis.error_reply('WEIRSHARED two limits of one key are of the same kind and period and would'
            .. ' share a state; use another period or key')
    end
end
if kind == CONCURRENT and (own == 0 or verb ~= SETTLE) then leased = true end
if least ~= 0 and own == 0 and shapes then
    return redis.error_reply('ERR a request with a least is not for limits that shape: give limit ' .. limit_count
        .. ' a cost of its own, or leave out the least')
end

-- A limit's state, brought up to now.
--@block load
local value, skip, sections, section = holder.value or '', holder.skip, holder.sections, nil
local present, fresh, at, amount, before, stored = false, 0, 0, 0, 0, 0
local base, capacity, head, len, sum, last, t = 1, 0, 0, 0, 0, 0, now
local grain, parts, weight, stable, top, cooldown, threshold, slope
--@use state.find
if section then
    present, fresh, at, amount = true, section[S_FRESH], section[S_AT], section[S_AMOUNT]
    before, stored, capacity = section[S_BEFORE], section[S_STORED], section[S_CAPACITY] or 0
    if capacity > 0 then
        base, head, len = section[S_POS] + 40 - skip, section[S_HEAD], section[S_LEN]
        sum, last = section[S_SUM], section[S_LAST]
    end
end
if kind == TOKEN_BUCKET or kind == LEAKY_BUCKET then
    if present then
        --@use bucket.absent
    end
    --@use bucket.load
elseif kind == STEPPED then
    if present then
        --@use stepped.absent
    end
    --@use stepped.load
elseif kind == FIXED_WINDOW or kind == FROM_FIRST then
    if present then
        --@use fixed_window.absent
    end
    --@use fixed_window.load
elseif kind == SLIDING_LOG or kind == SLIDING_WINDOW then
    if present then
        --@use stamps.absent
    end
    --@use stamps.load
elseif kind == SLIDING_COUNTER then
    --@use sliding_counter.derive
    if present then
        --@use sliding_counter.absent
    end
    --@use sliding_counter.load
elseif kind == CONCURRENT then
    if present then
        --@use concurrent.absent
    end
    --@use concurrent.load
elseif kind == CALENDAR then
    if present then
        --@use calendar.absent
    end
    --@use calendar.load
else
    --@use guava.derive
    if present then
        --@use guava.absent
    end
    --@use guava.load
end

--@block judge
local wait = wait_for
if wait < 0 then
    wait = shapes and EXACT_MAX or wait == -2 and DURATION_MAX or 0
end
local allowed, limit, retry, delay = 0, 0, 0, 0
if kind == TOKEN_BUCKET then
    --@use token_bucket.judge
elseif kind == STEPPED then
    --@use stepped.judge
elseif kind == LEAKY_BUCKET then
    --@use leaky_bucket.judge
elseif kind == FIXED_WINDOW or kind == FROM_FIRST then
    --@use fixed_window.judge
elseif kind == SLIDING_LOG or kind == SLIDING_WINDOW then
    --@use stamps.judge
elseif kind == SLIDING_COUNTER then
    --@use sliding_counter.judge
elseif kind == CONCURRENT then
    --@use concurrent.judge
elseif kind == CALENDAR then
    --@use calendar.judge
else
    --@use guava.judge
end
if allowed == 0 then all = false end
rows[limit_count] = {allowed, limit, 0, retry, 0, delay}
ops[limit_count] = {
    holder, kind, period, extra, count, burst, cost, section, present, at, amount, before, stored,
    base + skip, capacity, head, len, sum, last, t, tick, ticks, cap, grain, parts, weight,
    stable, top, cooldown, threshold, slope,
}

-- Charges if all allowed it, then tells what is left.
--@block charge_and_report
local op, row = ops[i], rows[i]
local holder, kind, period, extra, count, burst, cost = op[1], op[2], op[3], op[4], op[5], op[6], op[7]
local section, present, at, amount, before, stored = op[8], op[9], op[10], op[11], op[12], op[13]
local capacity, head, len, sum, last, t = op[15], op[16], op[17], op[18], op[19], op[20]
local tick, ticks, cap, grain, parts, weight = op[21], op[22], op[23], op[24], op[25], op[26]
local stable, top, cooldown, threshold, slope = op[27], op[28], op[29], op[30], op[31]
local key, value, skip = holder.key, holder.value or '', holder.skip
local base = op[14] - skip
local remaining, reset, fresh = 0, 0, 0
local changed, cells, place, cell = charging and cost > 0, nil, nil, nil
if kind == TOKEN_BUCKET or kind == LEAKY_BUCKET then
    if changed then
        --@use bucket.charge
        --@use bucket.fresh count
    end
    --@use bucket.report
elseif kind == STEPPED then
    if changed then
        --@use stepped.charge
        --@use stepped.fresh count
    end
    --@use stepped.report
elseif kind == FIXED_WINDOW or kind == FROM_FIRST then
    if changed then
        --@use fixed_window.charge
        --@use fixed_window.fresh
    end
    --@use fixed_window.report
elseif kind == SLIDING_LOG or kind == SLIDING_WINDOW then
    if changed then
        if kind == SLIDING_LOG then
            --@use sliding_log.charge
        else
            --@use sliding_window.charge
        end
        --@use stamps.fresh
    end
    --@use stamps.report
elseif kind == SLIDING_COUNTER then
    if changed then
        --@use sliding_counter.charge
        --@use sliding_counter.fresh
    end
    --@use sliding_counter.report
elseif kind == CONCURRENT then
    if changed then
        local named_by = verb == ACQUIRE and id or 0
        holds = named_by
        --@use concurrent.charge named_by
        --@use concurrent.fresh
    end
    --@use concurrent.report
elseif kind == CALENDAR then
    if changed then
        --@use calendar.charge
        --@use calendar.fresh
    end
    --@use calendar.report
else
    if changed then
        --@use guava.charge
        --@use guava.fresh
    end
    --@use guava.report
end
row[3], row[5] = remaining, reset
if i == 1 then
    if kind == SMOOTH or kind == WARMUP then
        --@use guava.salt salt
    else
        salt = capacity > 0 and sum or amount
    end
end
if changed then
    --@use state.keep
end

-- The keys with a least get one amount, from the largest of their leasts to the smallest of their costs.
--@block budget
local place = 5
for k = 1, #KEYS do
    local whole, least = tonumber(ARGV[place]), tonumber(ARGV[place + 1])
    local limits = tonumber(ARGV[place + 2])
    if not (whole and least and limits) then break end
    if least > 0 then
        if least > floor then floor = least end
        if whole < ceiling then ceiling = whole end
    end
    place = place + 3 + limits * (owns and 8 or 7)
end
if floor > ceiling then
    return redis.error_reply('ERR a least exceeds the cost, or that of another key: all get the same')
end

-- What requests with a least get, which were judged by it: what all their limits allow together becomes their cost. Where
-- the call is denied, each limit shows what it would allow alone. Limits with a cost of their own keep it.
--@block grant
local i = 0
for k = 1, #asks do
    for j = i + 1, i + asks[k][3] do
        local row = rows[j]
        row[7] = row[1] == 1 and ops[j][O_COST] or 0
        if asks[k][2] == 0 then
            own_of[j] = -1
        elseif own_of[j] == 0 and row[1] == 1 then
            row[7] = row[3] < ceiling and row[3] or ceiling
        end
    end
    i = i + asks[k][3]
end
local together = ceiling
for j = 1, #rows do
    if own_of[j] == 0 and rows[j][7] < together then together = rows[j][7] end
end
for j = 1, #rows do
    if all and own_of[j] == 0 then ops[j][O_COST], rows[j][7] = together, together end
end
if floor > 0 then
    for k = 1, #asks do
        if asks[k][2] > 0 then asks[k][1] = together end
    end
    ceiling = together
end

-- settle, renew and release: what they change of a loaded state.
--@block correct
ops[limit_count] = {holder, kind, period, extra}
local change, settled, lapse = verb == SETTLE and cost - c0 or 0, false, present and fresh or 0
local mark
if named then
    local name
    --@use state.marked
    mark = name
    if settled then change = 0 end
end
local changed, cells, place, cell = false, nil, nil, nil
if kind == SLIDING_LOG or kind == SLIDING_WINDOW then
    --@use stamps.check_all
elseif kind == CONCURRENT then
    --@use concurrent.check_all
end
if change == 0 and kind ~= CONCURRENT then
elseif kind == TOKEN_BUCKET or kind == LEAKY_BUCKET then
    --@use bucket.settle
    --@use bucket.fresh count
elseif kind == STEPPED then
    --@use stepped.settle
    --@use stepped.fresh count
elseif kind == FIXED_WINDOW or kind == FROM_FIRST then
    --@use fixed_window.settle
    --@use fixed_window.fresh
elseif kind == SLIDING_LOG then
    --@use sliding_log.settle
    --@use stamps.fresh
elseif kind == SLIDING_WINDOW then
    --@use sliding_window.settle
    --@use stamps.fresh
elseif kind == SLIDING_COUNTER then
    --@use sliding_counter.settle
    --@use sliding_counter.fresh
elseif kind == CALENDAR then
    --@use calendar.settle
    --@use calendar.fresh
elseif kind ~= CONCURRENT then
    --@use guava.settle
    --@use guava.fresh
elseif verb == RENEW then
    --@use concurrent.renew
    --@use concurrent.fresh
elseif verb == RELEASE then
    --@use concurrent.release
    --@use concurrent.fresh
end
if changed then
    --@use state.keep
    if verb >= RENEW then all = 1 end
end
if mark and not settled then
    if change ~= 0 and present and fresh > lapse then lapse = fresh end
    --@use state.mark
    left = left + 1
end

-- Composes every key that is written as a whole first, so that nothing is written if one cannot be.
--@block write
for i = 1, #held do
    local holder = held[i]
    local key = holder.key
    if holder.new then
        --@use state.marks
    end
    if holder.changed and (holder.rebuilt or holder.size <= SHORT_VALUE) then
        --@use state.compose
        holder.parts, holder.live = parts, live
    end
end
for i = 1, #held do
    local holder = held[i]
    local key = holder.key
    if holder.changed then
        --@use state.write holder.parts | holder.live
    end
end

--@block reply
if verb == SETTLE then return redis.status_reply(named and left == 0 and 'SETTLED' or 'OK') end
if verb >= RENEW then return all == 1 and 1 or 0 end
--@use fold.fold
local granted = folded[1] == 1 and (floor > 0 and ceiling or asks[1][1]) or 0
local charged = folded[1] == 1 and verb ~= PEEK and asks[1][1] or 0
if verb == TAKE and id > 0 then salt = id end
--@use clock.receipt folded[7] | charged | salt
if tells then folded[8] = granted end
if verb == ACQUIRE then folded[#folded + 1] = holds end
if options % 2 == 1 then
    folded[#folded + 1] = binding - 1
    for i = 1, #rows do folded[#folded + 1] = rows[i] end
end
return folded
