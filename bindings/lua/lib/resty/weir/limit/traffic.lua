-- resty.limit.traffic: several limiters for one request. Either all of them count it, or none.
-- README.md tells what is the same as in resty.limit.traffic, and what is not.

local max = math.max

local _M = {_VERSION = "0.09"}

-- Gives back what limiters were charged already. What fails here leaves a limiter too strict.
local function undo(limiters, keys, last, upto)
    for i = 1, upto do
        limiters[i]:uncommit(keys[i])
    end
    limiters[last]:uncommit(keys[last])
end

-- The largest delay of all; nil and the error of the first that refuses. Those before the last are
-- asked without counting first, so that most refusals cost nothing. Then they count, too.
function _M.combine(limiters, keys, states)
    local last = #limiters
    if last == 0 then
        return 0
    end
    for i = 1, last - 1 do
        local delay, err = limiters[i]:incoming(keys[i], false)
        if not delay then
            return nil, err
        end
    end
    local most, state = limiters[last]:incoming(keys[last], true)
    if not most then
        return nil, state
    end
    if states then
        states[last] = state
    end
    for i = 1, last - 1 do
        local delay, told = limiters[i]:incoming(keys[i], true)
        if not delay then
            undo(limiters, keys, last, i - 1)
            return nil, told
        end
        if states then
            states[i] = told
        end
        most = max(most, delay)
    end
    return most
end

return _M
