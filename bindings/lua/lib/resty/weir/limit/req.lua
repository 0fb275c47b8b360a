-- resty.limit.req, without its race: at most `rate` requests per second, up to `burst` more of them
-- delayed. It is weir's leaky bucket, in thousandths of a request, because rates and bursts may have
-- three decimals. README.md tells what is the same as in resty.limit.req, and what is not.

local ffi = require "ffi"
local library = require "resty.weir.library"
local arguments = require "resty.weir.arguments"
local states = require "resty.weir.limit.states"

local C, failure = library.C, library.error
local find, store_of, buffer = states.find, states.store, states.buffer
local tonumber, type, floor = tonumber, type, math.floor

local LEAKY_BUCKET = 3
local PARTS = 1000 -- of a request
local RECORD_SIZE = 16 -- of what resty.limit.req leaves in a dict

local _M = {_VERSION = "0.09"}
local mt = {__index = _M}

local decision = ffi.new("weir_decision")

local function adopts(value)
    return type(value) == "string" and #value == RECORD_SIZE
end

local function is_number(value, least)
    return type(value) == "number" and value >= least and value < math.huge
end

-- The limit of the numbers that are set; nil and what is wrong with them.
local function make(self)
    local count = floor(self.rate * PARTS + 0.5)
    local limit, err = states.limit({kind = LEAKY_BUCKET, count = count < 1 and 1 or count,
                                     period_us = 1000000, nodelay = true,
                                     burst = floor((self.burst + 1) * PARTS + 0.5) - 1})
    self.limit, self.problem = limit, err
    return limit, err
end

function _M.new(dict_name, rate, burst)
    local zone, err = states.open(dict_name)
    if not zone then
        return nil, err
    end
    if not (is_number(rate, 0) and rate > 0) then
        return nil, "invalid rate " .. arguments.show(rate) .. ": expected a number above 0"
    elseif not is_number(burst, 0) then
        return nil, "invalid burst " .. arguments.show(burst) .. ": expected a number from 0 on"
    end
    local self = setmetatable({zone = zone, rate = rate, burst = burst}, mt)
    local limit, wrong = make(self)
    if not limit then
        return nil, wrong
    end
    return self
end

-- How many requests there are too many now, this one included, and how many seconds it has to wait.
function _M.incoming(self, key, commit)
    local limit = self.limit
    if not limit then
        return nil, self.problem
    end
    local zone = self.zone
    local len, err = find(zone, key, commit, adopts)
    if not len then
        if err then
            return nil, err
        end
        return 0, 0 -- nothing is known of this key
    end
    local store = store_of(zone)
    local spent
    if commit then
        local code = C.weir_take_n(store, buffer, len, limit, PARTS, decision, failure)
        if code ~= 0 then
            return states.failed(zone, code)
        end
        spent = PARTS
    else
        local code = C.weir_peek_n(store, buffer, len, limit, PARTS, decision, failure)
        if code ~= 0 then
            return states.failed(zone, code)
        end
        spent = 0
    end
    if not decision.allowed then
        return nil, "rejected"
    end
    local excess = tonumber(decision.limit) - tonumber(decision.remaining) - spent
    return excess / (self.rate * PARTS), excess / PARTS
end

-- Gives a request back, but never the first one of a busy key.
function _M.uncommit(self, key)
    assert(key)
    local zone, limit = self.zone, self.limit
    if not limit then
        return nil, self.problem
    end
    local len, err = find(zone, key, false, adopts)
    if not len then
        return nil, err or "not found"
    end
    local store = store_of(zone)
    local code = C.weir_peek_n(store, buffer, len, limit, 0, decision, failure)
    if code ~= 0 then
        return states.failed(zone, code)
    end
    local spent = tonumber(decision.limit) - tonumber(decision.remaining)
    local back = math.max(0, math.min(PARTS, spent - PARTS))
    if back > 0 then
        code = states.give_back(store, len, limit, back)
        if code ~= 0 then
            return states.failed(zone, code)
        end
    end
    return true
end

function _M.set_rate(self, rate)
    if rate ~= self.rate then
        self.rate = is_number(rate, 0) and rate or 0
        make(self)
        if self.rate == 0 then
            self.limit = nil
            self.problem = "invalid rate " .. arguments.show(rate) .. ": expected a number above 0"
        end
    end
end

function _M.set_burst(self, burst)
    if burst ~= self.burst then
        self.burst = is_number(burst, 0) and burst or 0
        make(self)
        if self.burst ~= burst then
            self.limit = nil
            self.problem = "invalid burst " .. arguments.show(burst) ..
                           ": expected a number from 0 on"
        end
    end
end

return _M
