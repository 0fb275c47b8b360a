-- A store in memory: `memory:`, `shm:` and `file:`. Calls go through the FFI, take about a
-- microsecond and never wait, so they can be made in every phase of nginx.
--
-- The structures below are shared by all calls. That is safe, because no call yields.

local ffi = require "ffi"
local library = require "resty.weir.library"
local arguments = require "resty.weir.arguments"
local decision = require "resty.weir.decision"
local waiting = require "resty.weir.waiting"

local C, failure = library.C, library.error
local type, tonumber = type, tonumber
local limit_of, cost_of, key_of, decided = arguments.limit, arguments.cost, arguments.key,
                                           decision.of

local LIMITS_MAX = 16
local MANY_KEPT = 64 -- requests that take_many has room for without making some
local EGONE, ESETTLED = -22, -19
local COST_NONE = ffi.cast("int64_t", 0x8000000000000000ULL)
local WAIT_DEFAULT = COST_NONE + 1
local WAIT_ANY = ffi.cast("int64_t", 0x7fffffffffffffffULL)

local _M = {}
local methods = {}
local mt = {__index = methods}

local one = ffi.new("weir_decision")
local some = ffi.new("weir_request[?]", LIMITS_MAX)
local rows = ffi.new("weir_decision[?]", LIMITS_MAX)
local slot = ffi.new("weir_store *[1]")

local function failed(code)
    local message = failure.code == code and ffi.string(failure.message) or ""
    if message == "" then
        message = ffi.string(C.weir_strerror(code))
    end
    return nil, message, ffi.string(C.weir_errname(code))
end

local function open(url)
    if C.weir_store_open(url, slot, failure) ~= 0 then
        return nil, ffi.string(failure.message), ffi.string(C.weir_errname(failure.code))
    end
    return ffi.gc(slot[0], C.weir_store_close)
end

-- Opens a store. It is closed when nobody uses it any more.
function _M.open(url)
    local handle, err, name = open(url)
    if not handle then
        return nil, err, name
    end
    return setmetatable({url = url, handle = handle}, mt)
end

-- Whether a call is to be made again: somebody has put another zone in the place of ours.
local function reopened(self, code)
    if code ~= EGONE then
        return false
    end
    local handle = open(self.url)
    if not handle then
        return false
    end
    self.handle = handle
    return true
end

-- ---- one key ----

-- Puts one request with options where C reads it.
local function prepare(request, key, limit, cost, options)
    request.key.data, request.key.len = key, #key
    request.limit = limit
    request.cost = cost == 0 and COST_NONE or cost
    request.wait_us, request.least = WAIT_DEFAULT, 0
    request.detail, request.acquire, request.error = nil, false, failure
    if options.wait ~= nil then
        local wait, err = arguments.wait(options.wait)
        if not wait then
            return nil, err
        end
        request.wait_us = wait == -2 and WAIT_ANY or wait
    end
    if options.least ~= nil then
        local least, err = arguments.whole("least", options.least, 1, cost)
        if not least then
            return nil, err
        end
        request.least = least
    end
    return true
end

local function ask(self, verb, n)
    failure.code = 0
    local code = C[verb](self.handle, some, n, one)
    if reopened(self, code) then
        code = C[verb](self.handle, some, n, one)
    end
    return code
end

-- take, peek and acquire with options.
local function ask_one(self, verb, key, limit, cost, given, acquire)
    local options, err = arguments.options(given, "take")
    if not options then
        return nil, err, "EINVAL"
    end
    local ok, wrong = prepare(some[0], key, limit, cost, options)
    if not ok then
        return nil, wrong, "EINVAL"
    end
    some[0].acquire = acquire
    if options.detail then
        some[0].detail = rows
    end
    local code = ask(self, verb, 1)
    if code ~= 0 then
        return failed(code)
    end
    local answer = decided(one, options.into)
    if options.detail then
        answer.rows = decision.rows(rows, tonumber(C.weir_limit_count(limit)))
    end
    return answer
end

-- Decides, and charges if allowed.
function methods:take(key, given, cost, options)
    local limit, err, name = limit_of(given)
    if not limit then
        return nil, err, name
    end
    local wrong
    key, wrong = key_of(key)
    if not key then
        return nil, wrong, "EINVAL"
    end
    if cost == nil then
        cost = 1
    else
        cost, wrong = cost_of(cost)
        if not cost then
            return nil, wrong, "EINVAL"
        end
    end
    if options then
        return ask_one(self, "weir_take_all", key, limit, cost, options, false)
    end
    local code = C.weir_take_n(self.handle, key, #key, limit, cost, one, failure)
    if code == 0 then
        return decided(one)
    elseif reopened(self, code) then
        return self:take(key, limit, cost)
    end
    return failed(code)
end

-- The arguments of peek and acquire.
local function check(key, given, cost)
    local limit, err, name = limit_of(given)
    if not limit then
        return nil, err, name
    end
    local good, wrong = key_of(key)
    if not good then
        return nil, wrong, "EINVAL"
    end
    cost, wrong = cost_of(cost == nil and 1 or cost)
    if not cost then
        return nil, wrong, "EINVAL"
    end
    return limit, cost
end

-- What take would answer. It charges nothing.
function methods:peek(key, given, cost, options)
    local limit, err, name = check(key, given, cost)
    if not limit then
        return nil, err, name
    end
    return ask_one(self, "weir_peek_all", key, limit, err, options or {}, false)
end

-- Takes, and holds a lease of the `concurrent` limit.
function methods:acquire(key, given, cost, options)
    local limit, err, name = check(key, given, cost)
    if not limit then
        return nil, err, name
    end
    return ask_one(self, "weir_take_all", key, limit, err, options or {}, true)
end

local function lease_verb(self, verb, key, given, lease)
    local limit, err, name = check(key, given, 1)
    if not limit then
        return nil, err, name
    end
    local id, wrong = arguments.lease(lease)
    if not id then
        return nil, wrong, "EINVAL"
    end
    local code = C[verb](self.handle, key, #key, limit, id, failure)
    if reopened(self, code) then
        code = C[verb](self.handle, key, #key, limit, id, failure)
    end
    if code ~= 0 then
        return failed(code)
    end
    return true
end

-- Starts the time of a lease again. nil, message, "ENOLEASE": it has expired.
function methods:renew(key, limit, lease)
    return lease_verb(self, "weir_renew_n", key, limit, lease)
end

-- Gives a lease back.
function methods:release(key, limit, lease)
    return lease_verb(self, "weir_release_n", key, limit, lease)
end

-- Corrects a charge to the real cost. true; true, "before": it was settled before, nothing changed.
function methods:settle(key, given, receipt, actual)
    local limit, err, name = check(key, given, actual)
    if not limit then
        return nil, err, name
    end
    if actual == nil then
        return nil, "invalid cost nil: expected the real cost", "EINVAL"
    end
    if type(receipt) ~= "string" then
        return nil, "invalid receipt " .. arguments.show(receipt) ..
                    ": expected what resty.weir's receipt() said", "EINVAL"
    end
    local code = C.weir_settle_n(self.handle, key, #key, limit, receipt, actual, failure)
    if reopened(self, code) then
        code = C.weir_settle_n(self.handle, key, #key, limit, receipt, actual, failure)
    end
    if code == ESETTLED then
        return true, "before"
    elseif code ~= 0 then
        return failed(code)
    end
    return true
end

-- Forgets a key, under all limits.
function methods:reset(key)
    local good, wrong = key_of(key)
    if not good then
        return nil, wrong, "EINVAL"
    end
    local code = C.weir_reset_n(self.handle, key, #key, failure)
    if reopened(self, code) then
        code = C.weir_reset_n(self.handle, key, #key, failure)
    end
    if code ~= 0 then
        return failed(code)
    end
    return true
end

-- ---- several keys ----

-- Reads request i of a list into `request`.
local function read_request(requests, i, request, default_wait)
    local given = requests[i]
    local options, err = arguments.options(given, "request")
    if not options then
        return nil, "request " .. i .. ": " .. err, "EINVAL"
    end
    local limit, wrong, name = check(given.key, given.limit, given.cost)
    if not limit then
        return nil, "request " .. i .. ": " .. wrong, name
    end
    local ok, bad = prepare(request, given.key, limit, given.cost or 1, given)
    if not ok then
        return nil, "request " .. i .. ": " .. bad, "EINVAL"
    end
    if given.wait == nil and default_wait then
        request.wait_us = default_wait
    end
    request.acquire = given.acquire and true or false
    return tonumber(C.weir_limit_count(limit))
end

local function list(requests, most)
    if type(requests) ~= "table" or #requests < 1 or #requests > most then
        return nil, "invalid requests " .. arguments.show(requests) .. ": expected a list of 1 to " ..
                    most .. " of them", "EINVAL"
    end
    return #requests
end

local function ask_all(self, verb, requests, given)
    local n, err, name = list(requests, LIMITS_MAX)
    if not n then
        return nil, err, name
    end
    local options, wrong = arguments.options(given or {}, "take_all")
    if not options then
        return nil, wrong, "EINVAL"
    end
    local default_wait
    if options.wait ~= nil then
        default_wait, wrong = arguments.wait(options.wait)
        if not default_wait then
            return nil, wrong, "EINVAL"
        end
        default_wait = default_wait == -2 and WAIT_ANY or default_wait
    end
    local limits = 0
    for i = 1, n do
        local count
        count, err, name = read_request(requests, i, some[i - 1], default_wait)
        if not count then
            return nil, err, name
        end
        if options.detail and limits + count <= LIMITS_MAX then
            some[i - 1].detail = rows + limits
        end
        limits = limits + count
    end
    local code = ask(self, verb, n)
    if code ~= 0 then
        return failed(code)
    end
    local answer = decided(one, options.into)
    if options.detail then
        answer.rows = decision.rows(rows, limits)
    end
    return answer
end

-- Takes all of {key =, limit =, cost =, least =, acquire =} or nothing.
function methods:take_all(requests, options)
    return ask_all(self, "weir_take_all", requests, options)
end

-- take_all that charges nothing.
function methods:peek_all(requests, options)
    return ask_all(self, "weir_peek_all", requests, options)
end

local MANY_MAX = 10000
local many, many_rets, many_room = nil, nil, 0

local function make_room(n)
    if n > many_room then
        many_room = n > MANY_KEPT and n or MANY_KEPT
        many = ffi.new("weir_request[?]", many_room)
        many_rets = ffi.new("weir_decision[?]", many_room)
    end
end

-- Decides independent requests, each by itself. One decision for each: one that was not decided has
-- `code` and `error`, and is not allowed.
function methods:take_many(requests)
    local n, err, name = list(requests, MANY_MAX)
    if not n then
        return nil, err, name
    end
    make_room(n)
    for i = 1, n do
        local count
        count, err, name = read_request(requests, i, many[i - 1])
        if not count then
            return nil, err, name
        end
        many[i - 1].error = nil
    end
    local code = C.weir_take_many(self.handle, many, n, many_rets)
    if code == EGONE and reopened(self, code) then
        C.weir_take_many(self.handle, many, n, many_rets)
    end
    local answers = {}
    for i = 1, n do
        local ret = many_rets[i - 1]
        answers[i] = decided(ret)
        if ret.code ~= 0 then
            answers[i].allowed = false
            answers[i].code = ffi.string(C.weir_errname(ret.code))
            answers[i].error = ffi.string(C.weir_strerror(ret.code))
        end
    end
    return answers
end

-- Takes as soon as it is allowed, within so many seconds. Other requests go on meanwhile.
function methods:wait(key, limit, cost, seconds, options)
    return waiting.wait(self, key, limit, cost, seconds, options)
end

-- ---- the store ----

local info = ffi.new("weir_zone_info")
local counts = ffi.new("weir_counts")
local INFO = {"size", "keys", "capacity", "large_bytes", "large_used", "limits", "evicted_fresh",
              "evicted_unused", "evicted_soonest", "repairs", "refused", "limits_max"}
local COUNTS = {"allowed", "denied", "delayed", "failed", "degraded"}

local function numbers(structure, names)
    local t = {}
    for _, name in ipairs(names) do
        t[name] = tonumber(structure[name])
    end
    return t
end

-- How full the zone is, and what it has forgotten.
function methods:info()
    local code = C.weir_store_info(self.handle, info)
    if code ~= 0 then
        failure.code = 0
        return failed(code)
    end
    return numbers(info, INFO)
end

-- What this worker was answered by the store so far.
function methods:counts()
    local code = C.weir_store_counts(self.handle, counts)
    if code ~= 0 then
        failure.code = 0
        return failed(code)
    end
    return numbers(counts, COUNTS)
end

-- Checks every byte of the zone that can be checked. That takes long: not while requests wait.
function methods:check()
    local code = C.weir_store_check(self.handle, failure)
    if code ~= 0 then
        return failed(code)
    end
    return true
end

-- For tests: stops the clock of the store at this time; nil: the clock of the system again.
function methods:set_time(time_us)
    local code = C.weir_store_set_time(self.handle, time_us or -1)
    if code ~= 0 then
        failure.code = 0
        return failed(code)
    end
    return true
end

return _M
