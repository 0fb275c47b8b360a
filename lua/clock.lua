-- The server's clock and the key's expiry. clock_test.lua stands in for it in tests and replay.

--@block now
local time = redis.call('TIME')
local now, given = time[1] * 1000000 + time[2], #ARGV

-- A charge has an id: the caller's random one, or what no other charge of the key at this microsecond has. Numbers up
-- to 10^14 become text as they are; of most charges, which are 1, the id goes in two halves by %d, which is faster.
--@block receipt RET CHARGED ID
RET = time[2]
if #RET < 6 then RET = sub('00000', #RET) .. RET end
if CHARGED == 0 then
    RET = 'w1-' .. time[1] .. RET .. '-0'
else
    local name = (ID) % 1099511627775 + 1
    local tail = name % 1000000
    if CHARGED == 1 and name > tail then
        RET = format('w3-%s%s-1-%d%06d', time[1], RET, (name - tail) / 1000000, tail)
    else
        RET = 'w3-' .. time[1] .. RET .. '-' .. CHARGED .. '-' .. name
    end
end

-- `fresh` as milliseconds, rounded up. In two halves: %d takes either on any server, and is faster than %.0f.
--@block milliseconds
local expiry = fresh / 1000
expiry = expiry + -expiry % 1
local low = expiry % 1000000

-- Writes the key; it may go at `fresh`.
--@block set KEY BYTES
--@use clock.milliseconds
redis.call('SET', KEY, BYTES, 'PXAT', format('%d%06d', (expiry - low) / 1000000, low))

--@block expire KEY
--@use clock.milliseconds
redis.call('PEXPIREAT', KEY, format('%d%06d', (expiry - low) / 1000000, low))
