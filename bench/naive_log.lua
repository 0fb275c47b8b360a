-- What articles show: a sorted set with a member a request.
-- KEYS[1]; ARGV: limit, window in milliseconds
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - window)
local count = redis.call('ZCARD', KEYS[1])
if count >= limit then
    return {0, 0}
end
redis.call('ZADD', KEYS[1], now, time[1] .. '.' .. time[2])
redis.call('PEXPIRE', KEYS[1], window)
return {1, limit - count - 1}
