-- resty.limit.count: so many requests in a window, which opens with the first of them. README.md
-- tells what is the same as in resty.limit.count, and what is not.

local ffi = require "ffi"
local library = require "resty.weir.library"
local arguments = require "resty.weir.arguments"
local states = require "resty.weir.limit.states"

local C, failure = library.C, library.error
local find, store_of, buffer = states.find, states.store, states.buffer
local tonumber, type, floor = tonumber, type, math.floor

local FROM_FIRST = 5

local _M = {_VERSION = "0.09"}
local mt = {__index = _M}

local decision = ffi.new("weir_decision")

-- What resty.limit.count leaves in a dict.
local function adopts(value)
    return type(value) == "number"
end

local function is_positive(value)
    return type(value) == "number" and value > 0 and value < math.huge
end

function _M.new(dict_name, limit, window)
    local zone, err = states.open(dict_name)
    if not zone then
        return nil, err
    end
    if not is_positive(limit) then
        return nil, "invalid limit " .. arguments.show(limit) .. ": expected a number above 0"
    elseif not is_positive(window) then
        return nil, "invalid window " .. arguments.show(window) .. ": expected seconds above 0"
    end
    local self = setmetatable({zone = zone, count = floor(limit)}, mt)
    if self.count >= 1 then
        local made, wrong = states.limit({kind = FROM_FIRST, count = self.count,
                                          period_us = math.max(1, floor(window * 1000000 + 0.5))})
        if not made then
            return nil, wrong
        end
        self.limit = made
    end
    return self
end

-- 0 and how many requests are left in the window.
function _M.incoming(self, key, commit)
    local zone, limit = self.zone, self.limit
    local len, err = find(zone, key, commit, adopts)
    if not len and err then
        return nil, err
    elseif not limit then
        return nil, "rejected" -- less than one
    elseif not len then
        return 0, self.count - 1
    end
    local store = store_of(zone)
    local left
    if commit then
        local code = C.weir_take_n(store, buffer, len, limit, 1, decision, failure)
        if code ~= 0 then
            return states.failed(zone, code)
        end
        left = 0
    else
        local code = C.weir_peek_n(store, buffer, len, limit, 1, decision, failure)
        if code ~= 0 then
            return states.failed(zone, code)
        end
        left = 1
    end
    if not decision.allowed then
        return nil, "rejected"
    end
    return 0, tonumber(decision.remaining) - left
end

-- Gives a request back; how many are left then.
function _M.uncommit(self, key)
    assert(key)
    local zone, limit = self.zone, self.limit
    local len, err = find(zone, key, false, adopts)
    if not len and err then
        return nil, err
    elseif not len or not limit then
        return self.count
    end
    local store = store_of(zone)
    local code = states.give_back(store, len, limit, 1)
    if code == 0 then
        code = C.weir_peek_n(store, buffer, len, limit, 0, decision, failure)
    end
    if code ~= 0 then
        return states.failed(zone, code)
    end
    return tonumber(decision.remaining)
end

return _M
