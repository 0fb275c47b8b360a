-- The server's clock and the key's expiry. clock_test.lua stands in for it in tests and replay.

--@block now
local time = redis.call('TIME')
local now, given = time[1] * 1000000 + time[2], #ARGV

--@block receipt RET CHARGED
RET = format('w1-%s%06d-%.0f', time[1], time[2], CHARGED)

-- Writes the key; it may go at `fresh`, rounded up to a millisecond.
--@block set KEY BYTES
fresh = fresh / 1000
redis.call('SET', KEY, BYTES, 'PXAT', format('%.0f', fresh + -fresh % 1))

--@block expire KEY
fresh = fresh / 1000
redis.call('PEXPIREAT', KEY, format('%.0f', fresh + -fresh % 1))
