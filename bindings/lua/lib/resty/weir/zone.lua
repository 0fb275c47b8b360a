-- A store in memory: `memory:`, `shm:` and `file:`. Calls go through the FFI, take about a
-- microsecond and never wait, so they can be made in every phase of nginx.
--
-- The structures below are shared by all calls. That is safe, because no call yields.

local ffi = require "ffi"
local library = require "resty.weir.library"
local arguments = require "resty.weir.arguments"
local decision = require "resty.weir.decision"
local requests = require "resty.weir.requests"
local waiting = require "resty.weir.waiting"

local C, failure = library.C, library.error
local tonumber = tonumber
local limit_of, cost_of, key_of = arguments.limit, arguments.cost, arguments.key
local options_of, decided = arguments.options, decision.of

local LIMITS_MAX = 16
local EGONE, ESETTLED = -22, -19

local _M = {}
local methods = {}
local mt = {__index = methods}

local one = ffi.new("weir_decision")
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
    local clock = limit_of("fixed-window 1/s") -- any limit: the answer has the time of the store
    if clock and C.weir_peek_n(handle, "clock", 5, clock, 1, one, failure) == 0 then
        self.since = tonumber(one.time_us)
    end
    return true
end

-- The real cost for settle. What a zone counted that was replaced is lost: nothing of it is given
-- back in the new one, where others are charged.
local function settle_cost(self, receipt, actual)
    local at, charged = receipt:match("^w%d%-(%d+)%-(%d+)")
    charged = tonumber(charged)
    local lost = self.since and charged and tonumber(at) < self.since
    return lost and actual < charged and charged or actual
end

-- A function of the library, once more if its zone was replaced.
local function call(self, name, ...)
    local code = C[name](self.handle, ...)
    if reopened(self, code) then
        code = C[name](self.handle, ...)
    end
    return code
end

-- ---- one key ----

local function ask(self, verb, prepared, n)
    failure.code = 0
    return call(self, verb, prepared, n, one)
end

-- take, peek and acquire with options.
local function ask_one(self, verb, key, given, cost, options, acquire)
    local prepared, limit, name = requests.one(key, given, cost, options, acquire)
    if not prepared then
        return nil, limit, name
    end
    local detail = options and options.detail
    if detail then
        prepared[0].detail = rows
    end
    local code = ask(self, verb, prepared, 1)
    if code ~= 0 then
        return failed(code)
    end
    local answer = decided(one, options and options.into)
    if detail then
        answer.rows = decision.rows(rows, tonumber(C.weir_limit_count(limit)))
    end
    return answer
end

-- Decides, and charges if allowed.
function methods:take(key, given, cost, options)
    local into
    if options then
        local good, mistake = options_of(options, "take")
        if not good then
            return nil, mistake, "EINVAL"
        elseif options.wait ~= nil or options.least ~= nil or options.detail then
            return ask_one(self, "weir_take_all", key, given, cost, options, false)
        end
        into = options.into
    end
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
    local code = C.weir_take_n(self.handle, key, #key, limit, cost, one, failure)
    if code == 0 then
        return decided(one, into)
    elseif reopened(self, code) then
        return self:take(key, limit, cost, options)
    end
    return failed(code)
end

-- What take would answer. It charges nothing.
function methods:peek(key, limit, cost, options)
    return ask_one(self, "weir_peek_all", key, limit, cost, options, false)
end

-- Takes, and holds a lease of the `concurrent` limit.
function methods:acquire(key, limit, cost, options)
    return ask_one(self, "weir_take_all", key, limit, cost, options, true)
end

local function lease_verb(self, verb, key, given, lease)
    local limit, err, name = requests.check(key, given, 1)
    if not limit then
        return nil, err, name
    end
    local id, wrong = arguments.lease(lease)
    if not id then
        return nil, wrong, "EINVAL"
    end
    local code = call(self, verb, key, #key, limit, id, failure)
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
    local good, wrong = requests.receipt(receipt, actual)
    if not good then
        return nil, wrong, "EINVAL"
    end
    local limit, err, name = requests.check(key, given, actual)
    if not limit then
        return nil, err, name
    end
    local cost = settle_cost(self, receipt, actual)
    local code = C.weir_settle_n(self.handle, key, #key, limit, receipt, cost, failure)
    if reopened(self, code) then
        cost = settle_cost(self, receipt, actual)
        code = C.weir_settle_n(self.handle, key, #key, limit, receipt, cost, failure)
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
    local code = call(self, "weir_reset_n", key, #key, failure)
    if code ~= 0 then
        return failed(code)
    end
    return true
end

-- ---- several keys ----

local function ask_all(self, verb, list, options)
    local prepared, n, limits = requests.all(list, options)
    if not prepared then
        return nil, n, limits
    end
    local detail = options and options.detail
    local at = 0
    for i = 0, n - 1 do
        local count = tonumber(C.weir_limit_count(prepared[i].limit))
        if detail and at + count <= LIMITS_MAX then
            prepared[i].detail = rows + at
        end
        at = at + count
    end
    local code = ask(self, verb, prepared, n)
    if code ~= 0 then
        return failed(code)
    end
    local answer = decided(one, options and options.into)
    if detail then
        answer.rows = decision.rows(rows, limits)
    end
    return answer
end

-- Takes all of {key =, limit =, cost =, least =, acquire =} or nothing.
function methods:take_all(list, options)
    return ask_all(self, "weir_take_all", list, options)
end

-- take_all that charges nothing.
function methods:peek_all(list, options)
    return ask_all(self, "weir_peek_all", list, options)
end

local MANY_MAX = 10000
local many_rets, many_room = nil, 0

-- Decides independent requests, each by itself. One decision for each: one that was not decided has
-- `code` and `error`, and is not allowed.
function methods:take_many(list)
    local prepared, n, name = requests.many(list, MANY_MAX)
    if not prepared then
        return nil, n, name
    end
    if n > many_room then
        many_rets, many_room = ffi.new("weir_decision[?]", n), n
    end
    call(self, "weir_take_many", prepared, n, many_rets)
    requests.done()
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
              "evicted_unused", "evicted_soonest", "repairs", "refused", "limits_max",
              "evicted_receipts"}
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
    local code = call(self, "weir_store_check", failure)
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
