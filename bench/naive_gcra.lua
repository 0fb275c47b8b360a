-- One theoretical arrival time in a string, as redis-cell keeps it, by the server's clock in microseconds.
-- KEYS[1]; ARGV: burst, microseconds a token, cost
local burst, interval, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tat = tonumber(redis.call('GET', KEYS[1])) or now
if tat < now then
    tat = now
end
local later = tat + cost * interval
local wait = later - burst * interval - now
if wait > 0 then
    return {0, burst, 0, math.ceil(wait / 1000000), math.ceil((tat - now) / 1000000)}
end
redis.call('SET', KEYS[1], string.format('%.0f', later), 'PX', math.ceil((later - now) / 1000))
return {1, burst, math.floor(-wait / interval), -1, math.ceil((later - now) / 1000000)}
