-- A lean script: `take` of one key under one limit. KIND, ALGORITHM, SHAPE and ARGUMENTS are the
-- assembler's. A value that holds this limit's state alone is read and written in one go; any other takes
-- the long way round, as in the general script.

--@block main
local kind, key, ARGV = KIND, KEYS[1], ARGV
--@use clock.now
if given ~= ARGUMENT_COUNT then
    return redis.error_reply('ERR expected ARGUMENT_COUNT numbers: ARGUMENT_NAMES')
end
local ARGUMENT_LOCALS
if not (ARGUMENT_ALL) then
    return redis.error_reply('ERR expected ARGUMENT_COUNT numbers: ARGUMENT_NAMES')
end
--@use SHAPE.locals
local sound = cost >= 0 and cost <= COST_MAX and cost % 1 == 0
--@use rule.check
--@use ALGORITHM.derive
--@use ALGORITHM.check
--@use WAITS
if not sound then
    return redis.error_reply('ERR a number is out of bounds; `weir lua --args` prints good ones')
end
local sections, section, marks_pos, marks_until, salt
--@use SHAPE.fetch
if value then
    --@use SHAPE.quick
    if not present then
        sections, size = {}, size or #value
        --@use state.walk
        --@use state.find
        if section then
            present, fresh, at = true, section[S_FRESH], section[S_AT]
            --@use SHAPE.long
        end
    end
    if present then
        --@use LOADER.absent
    end
else
    --@use SHAPE.none
end
--@use LOADER.load
local allowed, limit, remaining, retry, reset, delay, receipt = 0, 0, 0, 0, 0, 0
--@use JUDGE.judge
local charged = allowed == 1 and cost or 0
if charged > 0 then
    --@use CHARGE
    --@use FRESHER
    if not sections then
        --@use SHAPE.write
    else
        local holder, whole, count_of = {
            value = value, skip = skip, size = size, sections = sections, added = {}, fresh = 0,
            changed = false, rebuilt = false, marks = false, marks_pos = marks_pos, marks_until = marks_until or 0,
        }
        --@use state.keep
        if holder.rebuilt or size <= SHORT_VALUE then
            --@use state.compose
            whole, count_of = parts, live
        end
        --@use state.write whole | count_of
    end
end
--@use LOADER.report
--@use LOADER.salt salt
--@use clock.receipt receipt | charged | salt
return {allowed, limit, remaining, retry, reset, delay, receipt}

--@block wait_at_most
sound = sound and wait >= -2 and wait <= DURATION_MAX and wait % 1 == 0
if wait < 0 then wait = wait == -2 and DURATION_MAX or 0 end

--@block wait_any
sound = sound and wait >= -2 and wait <= DURATION_MAX and wait % 1 == 0
if wait < 0 then wait = EXACT_MAX end

--@block wait_none
