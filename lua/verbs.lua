-- The general script: every verb, several limits and keys in one atomic call. Nothing is written before
-- everything is judged. README.md says what the arguments are.
--
--   arguments ─► ops, one a limit ─► load and judge each ─► change all or none ─► write keys ─► reply

--@block main
local unpack, pack, tonumber = struct.unpack, struct.pack, tonumber
local sub, rep, byte, find, format = string.sub, string.rep, string.byte, string.find, string.format
--@use clock.now
--@use verbs.arguments
--@use verbs.read_keys
if verb == RESET then
    --@use verbs.reset
end
--@use verbs.read_limits
local rows, all = {}, true
for i = 1, #ops do
    --@use verbs.load
    if verb <= PEEK or verb == ACQUIRE then
        --@use verbs.judge
    else
        --@use verbs.correct
    end
end
if verb <= PEEK or verb == ACQUIRE then
    local charging = all and verb ~= PEEK
    for i = 1, #ops do
        --@use verbs.charge_and_report
    end
end
--@use verbs.write
--@use verbs.reply

-- verb, options, wait or receipt, lease.
--@block arguments
local verb, options = tonumber(ARGV[1]), tonumber(ARGV[2])
local wait_for, id = tonumber(ARGV[3]), tonumber(ARGV[4])
if not verb or not (verb >= TAKE and verb <= RELEASE and verb % 1 == 0) then
    return redis.error_reply('ERR the first argument is the verb, a number from 0 to 6')
end
if #KEYS == 0 or #KEYS > 16 or (#KEYS > 1 and verb >= SETTLE and verb ~= RESET) then
    return redis.error_reply('ERR take, peek and reset name 1 to 16 keys, the other verbs one')
end
local t0, c0
if verb ~= RESET then
    if not options or not id or not (id >= 0 and id < 140737488355328 and id % 1 == 0) then
        return redis.error_reply(
            'ERR expected verb, options, wait or receipt, lease, then each key\'s limits')
    end
    if verb == SETTLE then
        t0, c0 = string.match(ARGV[3], '^w1%-(%d+)%-(%d+)$')
        t0, c0 = tonumber(t0), tonumber(c0)
        if not t0 or t0 >= EXACT_MAX or c0 > COST_MAX then
            return redis.error_reply('ERR "' .. sub(ARGV[3], 1, 64)
                .. '" is no receipt; pass what the take replied')
        end
    elseif verb <= PEEK or verb == ACQUIRE then
        if verb <= PEEK then id = 0 end
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
        local value, sections = redis.pcall('GET', key), {}
        if value then
            --@use state.walk
        end
        held[key] = {key = key, value = value, sections = sections, added = {}}
        held[#held + 1] = held[key]
    end
end

--@block reset
local gone = 0
for i = 1, #held do
    if held[i].value then gone = gone + redis.call('DEL', held[i].key) end
end
return gone

-- For each key: cost, how many limits, and each limit's seven numbers.
--@block read_limits
local ops, from, leased = {}, 5, false
for k = 1, #KEYS do
    local cost, limits, holder = tonumber(ARGV[from]), tonumber(ARGV[from + 1]), held[KEYS[k]]
    if not cost or not (cost >= 0 and cost <= COST_MAX and cost % 1 == 0) then
        return redis.error_reply('ERR a cost is a whole number from 0 to 10^12')
    end
    if not limits or not (limits >= 1 and #ops + limits <= 16 and limits % 1 == 0) then
        return redis.error_reply('ERR a request has 1 to 16 limits')
    end
    from = from + 2
    for j = 1, limits do
        local kind, count, period = tonumber(ARGV[from]), tonumber(ARGV[from + 1]), tonumber(ARGV[from + 2])
        local burst, extra = tonumber(ARGV[from + 3]), tonumber(ARGV[from + 4])
        local flags, cold = tonumber(ARGV[from + 5]), tonumber(ARGV[from + 6])
        from = from + 7
        if not (kind and count and period and burst and extra and flags and cold) or from > given + 1 then
            return redis.error_reply('ERR a limit is seven numbers: kind count period burst extra flags cold')
        end
        local sound = kind >= 0 and kind <= 10 and kind % 1 == 0
        local tick, ticks, cap
        --@use rule.check
        if not sound then
        elseif kind == 0 then
            --@use token_bucket.derive
            --@use token_bucket.check
        elseif kind == 1 then
            --@use stepped.check
        elseif kind == 2 then
            --@use leaky_bucket.derive
            --@use leaky_bucket.check
        elseif kind == 5 then
            --@use sliding_log.check
        elseif kind == 6 then
            --@use sliding_window.check
        elseif kind == 7 then
            --@use sliding_counter.check
        elseif kind == 8 or kind == 9 then
            --@use guava.check
        elseif kind == 10 then
            --@use concurrent.check
        end
        if not sound then
            return redis.error_reply('ERR limit ' .. #ops + 1
                .. ' is out of bounds; `weir lua --args LIMITS` prints good ones')
        end
        for i = 1, #ops do
            local other = ops[i]
            if other.holder == holder and other.kind == kind
                and (kind == 10 or (other.period == period and (kind ~= 6 or other.extra == extra))) then
                return redis.error_reply('ERR two limits of one key are of the same kind and period and would'
                    .. ' share a state; use another period or key')
            end
        end
        leased = leased or kind == 10
        ops[#ops + 1] = {
            holder = holder, kind = kind, count = count, period = period, burst = burst, extra = extra,
            flags = flags, cold = cold, cost = cost,
        }
    end
end
if from ~= given + 1 then
    return redis.error_reply('ERR more arguments than limits')
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

-- Brings an op's state up to now.
--@block load
local op = ops[i]
local holder, kind, count, period, burst = op.holder, op.kind, op.count, op.period, op.burst
local extra, flags, cold, cost = op.extra, op.flags, op.cold, op.cost
local key, value, sections, section = holder.key, holder.value or '', holder.sections, nil
local present, fresh, at, amount, before, stored = false, 0, 0, 0, 0, 0
local base, capacity, head, len, sum, last, t = 1, 0, 0, 0, 0, 0, now
local tick, ticks, cap, grain, parts, weight, stable, top, cooldown, threshold, slope
--@use state.find
if section then
    present, fresh, at, amount, before = true, section.fresh, section.at, section.amount, section.before
    stored, last = section.stored, section.last
    if section.capacity then
        base, capacity = section.pos + 40, section.capacity
        head, len, sum = section.head, section.len, section.sum
    end
end
if kind == 0 or kind == 2 then
    if kind == 0 then
        --@use token_bucket.derive
    else
        --@use leaky_bucket.derive
    end
    if present then
        --@use bucket.absent
    end
    --@use bucket.load
elseif kind == 1 then
    if present then
        --@use stepped.absent
    end
    --@use stepped.load
elseif kind == 3 or kind == 4 then
    if present then
        --@use fixed_window.absent
    end
    --@use fixed_window.load
elseif kind == 5 or kind == 6 then
    if present then
        --@use stamps.absent
    end
    --@use stamps.load
elseif kind == 7 then
    --@use sliding_counter.derive
    if present then
        --@use sliding_counter.absent
    end
    --@use sliding_counter.load
elseif kind == 10 then
    if present then
        --@use concurrent.absent
    end
    --@use concurrent.load
else
    --@use guava.derive
    if present then
        --@use guava.absent
    end
    --@use guava.load
end
op.section, op.present, op.at, op.amount, op.before, op.stored = section, present, at, amount, before, stored
op.base, op.capacity, op.head, op.len, op.sum, op.last, op.t = base, capacity, head, len, sum, last, t
op.tick, op.ticks, op.cap, op.grain, op.parts, op.weight = tick, ticks, cap, grain, parts, weight
op.stable, op.top, op.cooldown, op.threshold, op.slope = stable, top, cooldown, threshold, slope

--@block judge
local wait = wait_for
if wait < 0 then
    local shapes = kind == 2 or kind == 8 or kind == 9
    wait = shapes and EXACT_MAX or wait == -2 and DURATION_MAX or 0
end
local allowed, limit, retry, delay = 0, 0, 0, 0
if kind == 0 then
    --@use token_bucket.judge
elseif kind == 1 then
    --@use stepped.judge
elseif kind == 2 then
    --@use leaky_bucket.judge
elseif kind == 3 or kind == 4 then
    --@use fixed_window.judge
elseif kind == 5 or kind == 6 then
    --@use stamps.judge
elseif kind == 7 then
    --@use sliding_counter.judge
elseif kind == 10 then
    --@use concurrent.judge
else
    --@use guava.judge
end
if allowed == 0 then all = false end
rows[i] = {allowed, limit, 0, retry, 0, delay}

-- Charges if all allowed it, then tells what is left.
--@block charge_and_report
local op, row = ops[i], rows[i]
local holder, kind, count, period, burst = op.holder, op.kind, op.count, op.period, op.burst
local extra, cost, key, value = op.extra, op.cost, holder.key, holder.value or ''
local section, present, at = op.section, op.present, op.at
local amount, before, stored = op.amount, op.before, op.stored
local base, capacity, head, len, sum, last, t = op.base, op.capacity, op.head, op.len, op.sum, op.last, op.t
local tick, ticks, cap, grain, parts, weight = op.tick, op.ticks, op.cap, op.grain, op.parts, op.weight
local stable, top, cooldown, threshold, slope = op.stable, op.top, op.cooldown, op.threshold, op.slope
local remaining, reset, fresh = 0, 0, 0
local changed, cells, place, cell = charging and cost > 0, nil, nil, nil
if kind == 0 or kind == 2 then
    if changed then
        --@use bucket.charge
        --@use bucket.fresh count
    end
    --@use bucket.report
elseif kind == 1 then
    if changed then
        --@use stepped.charge
        --@use stepped.fresh count
    end
    --@use stepped.report
elseif kind == 3 or kind == 4 then
    if changed then
        --@use fixed_window.charge
        --@use fixed_window.fresh
    end
    --@use fixed_window.report
elseif kind == 5 or kind == 6 then
    if changed then
        if kind == 5 then
            --@use sliding_log.charge
        else
            --@use sliding_window.charge
        end
        --@use stamps.fresh
    end
    --@use stamps.report
elseif kind == 7 then
    if changed then
        --@use sliding_counter.charge
        --@use sliding_counter.fresh
    end
    --@use sliding_counter.report
elseif kind == 10 then
    if changed then
        --@use concurrent.charge id
        --@use concurrent.fresh
    end
    --@use concurrent.report
else
    if changed then
        --@use guava.charge
        --@use guava.fresh
    end
    --@use guava.report
end
row[3], row[5] = remaining, reset
--@use verbs.keep

-- settle, renew and release: what they change of a loaded state.
--@block correct
local change = verb == SETTLE and cost - c0 or 0
local changed, cells, place, cell = false, nil, nil, nil
if kind == 5 or kind == 6 then
    --@use stamps.check_all
elseif kind == 10 then
    --@use concurrent.check_all
end
if change == 0 and kind ~= 10 then
elseif kind == 0 or kind == 2 then
    --@use bucket.settle
    --@use bucket.fresh count
elseif kind == 1 then
    --@use stepped.settle
    --@use stepped.fresh count
elseif kind == 3 or kind == 4 then
    --@use fixed_window.settle
    --@use fixed_window.fresh
elseif kind == 5 then
    --@use sliding_log.settle
    --@use stamps.fresh
elseif kind == 6 then
    --@use sliding_window.settle
    --@use stamps.fresh
elseif kind == 7 then
    --@use sliding_counter.settle
    --@use sliding_counter.fresh
elseif kind ~= 10 then
    --@use guava.settle
    --@use guava.fresh
elseif verb == RENEW then
    --@use concurrent.renew
    --@use concurrent.fresh
elseif verb == RELEASE then
    --@use concurrent.release
    --@use concurrent.fresh
end
--@use verbs.keep

-- A changed state's bytes, for writing; of a long ring only its header and the cell that changed.
--@block keep
if changed then
    local bytes = false
    if present then
        --@use state.pack
        if capacity > 0 then
            if #ops == 1 and section and not cells and #value > SHORT_VALUE then
                holder.header, holder.header_at = bytes, section.pos
                holder.cell, holder.cell_at = cell, base + place * 16
            else
                --@use ring.body
            end
        end
        if fresh > (holder.fresh or 0) then holder.fresh = fresh end
    end
    holder.changed = true
    if section then section.bytes = bytes elseif bytes then holder.added[#holder.added + 1] = bytes end
    if verb >= RENEW then all = 1 end
end

-- Composes every changed key first, so that nothing is written if one cannot be.
--@block write
for i = 1, #held do
    local holder = held[i]
    if holder.changed and not holder.header then
        local value, sections, added, fresh = holder.value, holder.sections, holder.added, holder.fresh or 0
        --@use state.compose
        holder.parts, holder.fresh = live > 0 and parts, fresh
    end
end
for i = 1, #held do
    local holder = held[i]
    local key, fresh = holder.key, holder.fresh
    if holder.parts then
        --@use clock.set key | table.concat(holder.parts)
    elseif holder.parts == false then
        redis.call('DEL', key)
    elseif holder.changed then
        for j = 1, #holder.sections do
            local other = holder.sections[j].bytes == nil and holder.sections[j].fresh or 0
            if other > fresh then fresh = other end
        end
        redis.call('SETRANGE', key, format('%.0f', holder.header_at - 1), holder.header)
        redis.call('SETRANGE', key, format('%.0f', holder.cell_at - 1), holder.cell)
        --@use clock.expire key
    end
end

--@block reply
if verb == SETTLE then return redis.status_reply('OK') end
if verb >= RENEW then return all == 1 and 1 or 0 end
--@use fold.fold
local charged = folded[1] == 1 and verb ~= PEEK and ops[1].cost or 0
--@use clock.receipt folded[7] | charged
if verb == ACQUIRE then folded[8] = charged > 0 and id or 0 end
if options % 2 == 1 then
    folded[#folded + 1] = binding - 1
    for i = 1, #rows do folded[#folded + 1] = rows[i] end
end
return folded
