-- For wrk, by bench/nginx.py: the @ of the address becomes one of so many keys, at random, all of one length.
-- Arguments: how many, and a seed. Tells at the end what was answered, as one line.

local random = math.random
local head, tail, keys

function init(arguments)
    keys = tonumber(arguments[1])
    math.randomseed(tonumber(arguments[2]))
    local whole = wrk.format()
    local at = whole:find("@", 1, true)
    head, tail = whole:sub(1, at - 1), whole:sub(at + 1)
end

function request()
    return head .. (1000000000 + random(0, keys - 1)) .. tail
end

function done(summary)
    local errors = summary.errors
    print("answered", summary.requests, errors.status, errors.connect + errors.read + errors.write + errors.timeout)
end
