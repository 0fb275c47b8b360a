-- Stands in for clock.lua in tests and replay: the time is the last argument, keys live for a day.

--@block now
local now, given = tonumber(ARGV[#ARGV]), #ARGV - 1
if not now or not (now >= 0 and now < EXACT_MAX and now % 1 == 0) then
    return redis.error_reply('ERR the last argument is the time in whole microseconds')
end

--@block receipt RET CHARGED ID
if CHARGED == 0 then
    RET = format('w1-%.0f-0', now)
else
    RET = format('w3-%.0f-%.0f-%.0f', now, CHARGED, (ID) % 1099511627775 + 1)
end

--@block set KEY BYTES
redis.call('SET', KEY, BYTES, 'PX', '86400000')

--@block expire KEY
redis.call('PEXPIRE', KEY, '86400000')
