-- What articles show: a token bucket in a hash, by the client's clock, written back whatever came out.
-- KEYS[1]; ARGV: capacity, tokens a millisecond, now in milliseconds, cost
local capacity, rate, now, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'last')
local tokens = tonumber(bucket[1]) or capacity
local last = tonumber(bucket[2]) or now
tokens = math.min(capacity, tokens + math.max(0, now - last) * rate)
local allowed = tokens >= cost
if allowed then
    tokens = tokens - cost
end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'last', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / rate))
return {allowed and 1 or 0, math.floor(tokens)}
