-- Fixed windows of the calendar: months, years, weeks from a weekday, and windows of any length in a zone. `at` is the
-- end, `amount` the count, `extra` the calendar: (unit * 512 + anchor) * 2048 + zone + 720. src/core/calendar.c and
-- src/core/date.h have the same arithmetic. Within a window none of it is needed.

--@block derive

-- A calendar that a limit can have, with its longest window as the period.
--@block check
sound = sound and extra >= 0 and extra < 4194304 and extra % 1 == 0
if sound then
    local zone, anchor, unit = extra % 2048, (extra - extra % 2048) / 2048 % 512, (extra - extra % 1048576) / 1048576
    local month = (anchor - anchor % 32) / 32
    if unit == 0 then
        sound = zone <= 1560 and zone ~= 720 and anchor == 0
    elseif unit == 1 then
        sound = zone <= 1560 and anchor >= 1 and anchor <= 7 and period == 7 * DAY
    elseif unit == 2 then
        sound = zone <= 1560 and anchor >= 1 and anchor <= 31 and period == 31 * DAY
    else
        local longest = month == 2 and 29 or 30 + (month >= 8 and month + 1 or month) % 2
        sound = zone <= 1560 and month >= 1 and month <= 12 and anchor % 32 >= 1 and anchor % 32 <= longest
            and period == 366 * DAY
    end
end

-- The first day of a month. Days count from 1970-01-01, months from March of the year 0.
--@block first RET MONTH
do
    local y, m = MONTH - MONTH % 12, 153 * (MONTH % 12) + 2
    y = y / 12
    RET = 365 * y + (y - y % 4) / 4 - (y - y % 100) / 100 + (y - y % 400) / 400 + (m - m % 5) / 5 - 719468
end

-- The anchor's day of a month, or its last.
--@block edge RET MONTH
do
    local after = MONTH + 1
    --@use calendar.first RET | MONTH
    --@use calendar.first after | after
    RET = RET + day - 1
    if RET >= after then RET = after - 1 end
end

-- The window that holds a time: START, perhaps before the epoch, and FINISH. A time and its zone are not added: near
-- 2^53 the sum would not be exact.
--@block window START FINISH TIME
do
    local zone, anchor, unit = (extra % 2048 - 720) * MINUTE, (extra - extra % 2048) / 2048 % 512, (extra - extra % 1048576) / 1048576
    if unit == 0 then
        START = TIME - (TIME % period + zone % period) % period
        FINISH = START + period
    else
        local here = TIME % DAY + zone
        local today = (TIME - TIME % DAY + here - here % DAY) / DAY
        if unit == 1 then
            START = today - (today + 4 - anchor) % 7
            FINISH = START + 7
        else
            local days = 4 * (today + 719468) + 3
            local century = (days - days % 146097) / 146097
            local rest = 146097 * century
            rest = today + 719468 - (rest - rest % 4) / 4
            days = 4 * rest + 3
            local year = (days - days % 1461) / 1461
            days = 1461 * year
            rest = 5 * (rest - (days - days % 4) / 4) + 2
            local month, step, day = (100 * century + year) * 12, 1, anchor
            if unit == 3 then
                month, step, day = month + ((anchor - anchor % 32) / 32 + 9) % 12, 12, anchor % 32
            else
                month = month + (rest - rest % 153) / 153
            end
            --@use calendar.edge START | month
            if today < START then
                FINISH, month = START, month - step
                --@use calendar.edge START | month
            else
                month = month + step
                --@use calendar.edge FINISH | month
            end
        end
        START, FINISH = START * DAY - zone, FINISH * DAY - zone
    end
end

-- Whether `at` is where a window ends; the last one of all ends at 2^53.
--@block ends RET
if at >= 1 and at <= EXACT_MAX then
    local start, finish
    --@use calendar.window start | finish | (at - 1)
    RET = finish == at or (at == EXACT_MAX and finish > at)
else
    RET = false
end

--@block fresh
fresh = at

-- The start is only needed where the clock was set back.
--@block absent
if now >= fresh then
    present = false
elseif at - now > MINUTE and at - now > period then
    local start, finish
    --@use calendar.window start | finish | (at - 1)
    if start - now > MINUTE and start - now > period then present = false end
end

--@block load
if not present or now >= at then
    local start
    present = false
    amount = 0
    --@use calendar.window start | at | now
    if at > EXACT_MAX then at = EXACT_MAX end
end

--@block judge
limit = count
if amount + cost <= count then
    allowed = 1
elseif cost > count then
    retry = -1
else
    retry = at - now
end

--@block charge
amount = amount + cost
present = true

--@block report
remaining = amount < count and count - amount or 0
reset = amount > 0 and at - now or 0

-- Where the window of t0 is gone, a refund is void and a surcharge is charged now.
--@block settle
local finish = at
if change < 0 then
    local start
    --@use calendar.window start | finish | t0
    if finish > EXACT_MAX then finish = EXACT_MAX end
end
if change > 0 or (present and finish == at) then
    amount = amount + change
    if amount > EXACT_MAX then amount = EXACT_MAX elseif amount < 0 then amount = 0 end
    present = amount > 0
    changed = true
end

-- What no two charges at one instant have in common.
--@block salt RET
RET = amount
