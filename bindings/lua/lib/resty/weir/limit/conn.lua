-- resty.limit.conn, without counters that stay wrong when a worker dies: at most `conn` requests at
-- a time, up to `burst` more of them delayed. README.md tells what is the same as in
-- resty.limit.conn, and what is not.
--
-- A request holds a lease of weir's `concurrent`, which expires a minute after its worker has died.
-- A worker knows its leases by dict and key, renews them every 15 seconds, and gives back the newest
-- one when a request of that key leaves. A worker that is about to end (a reload) has no timers any
-- more, and must not be kept from ending. So it makes its leases last an hour, for the requests that
-- it still serves.

local ffi = require "ffi"
local library = require "resty.weir.library"
local arguments = require "resty.weir.arguments"
local states = require "resty.weir.limit.states"

local C, failure = library.C, library.error
local find, store_of, buffer = states.find, states.store, states.buffer
local tonumber, tostring, type, floor = tonumber, tostring, type, math.floor

local CONCURRENT = 11
local LEASE_SECONDS, RENEW_SECONDS, LAST_SECONDS = 60, 15, 3600

local _M = {_VERSION = "0.09"}
local mt = {__index = _M}

local decision = ffi.new("weir_decision")

-- What resty.limit.conn leaves in a dict.
local function adopts(value)
    return type(value) == "number"
end

-- ---- the leases of this worker ----

local held = {} -- held[zone][key] = {lease, mark, limits, lease, mark, limits, …}
local renews = false

-- 7 and "7" are one key of a dict.
local function name_of(key)
    return type(key) == "string" and key or tostring(key)
end

-- One that has expired meanwhile is gone: its request goes on, as it would with any lease.
local function renew(ends)
    for zone, keys in pairs(held) do
        local store = store_of(zone)
        for key, leases in pairs(keys) do
            for i = 1, #leases, 3 do
                local limits = leases[i + 2]
                local _ = C.weir_renew_n(store, buffer, states.put(key, leases[i + 1]),
                                         ends and limits.last or limits.usual, leases[i], failure)
            end
        end
    end
end

local function start_renewing()
    if not renews then
        local ok, err = ngx.timer.every(RENEW_SECONDS, renew)
        if not ok and err ~= "process exiting" then
            return nil, err
        end
        renews = true
    end
    return true
end

local function hold(zone, key, lease, mark, limits)
    local keys = held[zone]
    if not keys then
        keys = {}
        held[zone] = keys
    end
    key = name_of(key)
    local leases = keys[key]
    if not leases then
        leases = {}
        keys[key] = leases
    end
    local n = #leases
    leases[n + 1], leases[n + 2], leases[n + 3] = lease, mark, limits
end

-- The newest lease of a key, its mark and its limits; it is forgotten here.
local function drop(zone, key)
    local keys = held[zone]
    key = name_of(key)
    local leases = keys and keys[key]
    if not leases then
        return nil
    end
    local n = #leases
    local lease, mark, limits = leases[n - 2], leases[n - 1], leases[n]
    leases[n], leases[n - 1], leases[n - 2] = nil, nil, nil
    if n == 3 then
        keys[key] = nil
    end
    return lease, mark, limits.usual
end

-- ---- the limiter ----

local function is_number(value, least)
    return type(value) == "number" and value >= least and value < math.huge
end

local function make(self)
    self.limit, self.limits, self.problem = nil, nil, nil
    if not (is_number(self.max, 0) and self.max > 0 and is_number(self.burst, 0)) then
        self.problem = "invalid conn " .. arguments.show(self.max) .. " or burst " ..
                       arguments.show(self.burst) .. ": expected numbers, conn above 0"
    elseif self.max + self.burst >= 1 then
        local most = floor(self.max + self.burst)
        self.limit, self.problem = states.limit({kind = CONCURRENT, count = most,
                                                 period_us = LEASE_SECONDS * 1000000})
        self.limits = {usual = self.limit,
                       last = states.limit({kind = CONCURRENT, count = most,
                                            period_us = LAST_SECONDS * 1000000})}
    end
    return not self.problem, self.problem
end

function _M.new(dict_name, max, burst, default_conn_delay)
    local zone, err = states.open(dict_name)
    if not zone then
        return nil, err
    end
    if not (is_number(max, 0) and max > 0) then
        return nil, "invalid conn " .. arguments.show(max) .. ": expected a number above 0"
    elseif not is_number(burst, 0) then
        return nil, "invalid burst " .. arguments.show(burst) .. ": expected a number from 0 on"
    elseif not (is_number(default_conn_delay, 0) and default_conn_delay > 0) then
        return nil, "invalid default_conn_delay " .. arguments.show(default_conn_delay) ..
                    ": expected seconds above 0"
    end
    local self = setmetatable({zone = zone, max = max, burst = burst,
                               unit_delay = default_conn_delay}, mt)
    local ok, wrong = make(self)
    if not ok then
        return nil, wrong
    end
    return self
end

-- How many seconds a request waits that is the conn-th at this time.
local function delayed(self, conn)
    local max = self.max
    if conn > max then
        return self.unit_delay * floor((conn - 1) / max), conn
    end
    return 0, conn
end

local function acquire(self, key, len, mark)
    local ok, err = start_renewing()
    if not ok then
        return nil, err
    end
    local limit = ngx.worker.exiting() and self.limits.last or self.limit
    local code = C.weir_acquire_n(store_of(self.zone), buffer, len, limit, 1, decision, failure)
    if code ~= 0 then
        return states.failed(self.zone, code)
    elseif not decision.allowed then
        return nil, "rejected"
    end
    hold(self.zone, key, tonumber(decision.lease), mark, self.limits)
    self.committed = true
    return delayed(self, tonumber(decision.limit) - tonumber(decision.remaining))
end

-- How many seconds to wait, and how many requests there are at this time, this one included.
function _M.incoming(self, key, commit)
    self.committed = false
    if self.problem then
        return nil, self.problem
    end
    local len, mark = find(self.zone, key, commit, adopts)
    if not len and mark then
        return nil, mark
    elseif not self.limit then
        return nil, "rejected" -- less than one
    elseif not len then
        return delayed(self, 1)
    elseif commit then
        return acquire(self, key, len, mark)
    end
    local code = C.weir_peek_n(store_of(self.zone), buffer, len, self.limit, 1, decision, failure)
    if code ~= 0 then
        return states.failed(self.zone, code)
    elseif not decision.allowed then
        return nil, "rejected"
    end
    return delayed(self, tonumber(decision.limit) - tonumber(decision.remaining) + 1)
end

function _M.is_committed(self)
    return self.committed or false
end

local function leave(self, key)
    local zone = self.zone
    local lease, mark, limit = drop(zone, key)
    if not lease then
        return nil, "not found"
    end
    local store, len = store_of(zone), states.put(key, mark)
    local code = C.weir_release_n(store, buffer, len, limit, lease, failure)
    if code ~= 0 and code ~= states.ENOLEASE then
        return states.failed(zone, code)
    end
    code = C.weir_peek_n(store, buffer, len, limit, 0, decision, failure)
    if code ~= 0 then
        return states.failed(zone, code)
    end
    return tonumber(decision.limit) - tonumber(decision.remaining)
end

-- A request has ended; how many there are still.
function _M.leaving(self, key, req_latency)
    assert(key)
    local conn, err = leave(self, key)
    if not conn then
        return nil, err
    end
    if req_latency then
        self.unit_delay = (req_latency + self.unit_delay) / 2
    end
    return conn
end

-- Gives back what the last incoming() took; how many there are still.
function _M.uncommit(self, key)
    assert(key)
    return leave(self, key)
end

function _M.set_conn(self, conn)
    if conn ~= self.max then
        self.max = conn
        make(self)
    end
end

function _M.set_burst(self, burst)
    if burst ~= self.burst then
        self.burst = burst
        make(self)
    end
end

return _M
