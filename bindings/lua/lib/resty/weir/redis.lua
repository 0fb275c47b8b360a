-- A store in Redis or Valkey, over nginx's cosockets: no call blocks the worker. The addresses, the
-- answers and what happens while the server is away are those of redis:// stores everywhere:
-- docs/REDIS-STORE.md. One server; Cluster and Sentinel are refused.

local ffi = require "ffi"
local library = require "resty.weir.library"
local arguments = require "resty.weir.arguments"
local decision = require "resty.weir.decision"
local requests = require "resty.weir.requests"
local redis_link = require "resty.weir.redis_link"
local waiting = require "resty.weir.waiting"

local C, failure = library.C, library.error
local tonumber, type = tonumber, type

local EUNREACHABLE, ESETTLED = redis_link.EUNREACHABLE, -19
local MANY_MAX, MANY_AT_ONCE = 10000, 32

local _M = {}
local methods = {}
local mt = {__index = methods}

local redis_slot = ffi.new("weir_redis *[1]")
local call_slot = ffi.new("weir_redis_call *[1]")

-- `options`: pool, how many idle connections a worker keeps; idle, for how many seconds.
function _M.open(url, options)
    local pool, err = arguments.whole("pool", options and options.pool or 30, 1, 10000)
    local idle, wrong = arguments.whole("idle", options and options.idle or 60, 1, 86400)
    if not pool or not idle then
        return nil, err or wrong, "EINVAL"
    end
    if C.weir_redis_open(url, redis_slot, failure) ~= 0 then
        return nil, ffi.string(failure.message), ffi.string(C.weir_errname(failure.code))
    end
    local redis = ffi.gc(redis_slot[0], C.weir_redis_close)
    return setmetatable({redis = redis, link = redis_link.new(redis, url, pool, idle),
                         tally = {allowed = 0, denied = 0, delayed = 0, failed = 0, degraded = 0}},
                        mt)
end

-- ---- one call ----

local function named(code, message)
    if not message or message == "" then
        message = ffi.string(C.weir_strerror(code))
    end
    return nil, message, ffi.string(C.weir_errname(code))
end

-- A call of the requests that resty.weir.requests has prepared. It owns what it needs.
local function make(self, verb, prepared, n, receipt, lease)
    local refused = waiting.refusal("a redis:// store")
    if refused then
        return nil, refused, "EUNSUPPORTED"
    end
    failure.code = 0
    local code = C.weir_redis_ask(self.redis, verb, prepared, n, receipt, lease or 0, call_slot,
                                  failure)
    if code ~= 0 then
        return named(code, failure.code == code and ffi.string(failure.message))
    end
    return ffi.gc(call_slot[0], C.weir_redis_call_free)
end

-- What became of a call: 0 or a code, and a message. The fallback decides where the server did not.
local function settle_code(self, call, code, message)
    if code ~= EUNREACHABLE then
        return code, message
    end
    self.link.fallbacks = self.link.fallbacks + 1
    local local_code = C.weir_redis_fall_back(call, failure)
    if local_code == EUNREACHABLE then
        return code, message
    end
    return local_code, local_code ~= 0 and ffi.string(failure.message) or nil
end

local function run(self, call)
    return settle_code(self, call, self.link:ask(call))
end

local function count(self, answer)
    local tally = self.tally
    local name = not answer and "failed" or answer.allowed and "allowed" or "denied"
    tally[name] = tally[name] + 1
    if answer and answer.degraded then
        tally.degraded = tally.degraded + 1
    end
    if answer and answer.allowed and answer.delay_us > 0 then
        tally.delayed = tally.delayed + 1
    end
end

-- The table of a call that was decided; `detail`: with rows.
local function answered(call, into, detail)
    local answer = decision.of(C.weir_redis_decision(call, -1)[0], into)
    if detail then
        answer.rows = {}
        local i, row = 0, C.weir_redis_decision(call, 0)
        while row ~= nil do
            i = i + 1
            answer.rows[i] = decision.of(row[0])
            row = C.weir_redis_decision(call, i)
        end
    end
    return answer
end

local function decide(self, verb, prepared, n, options)
    local into, detail = options.into, options.detail
    local call, err, name = make(self, verb, prepared, n)
    if not call then
        return nil, err, name
    end
    local code, message = run(self, call)
    local answer = code == 0 and answered(call, into, detail) or nil
    if verb == "take" then
        count(self, answer)
    end
    if not answer then
        return named(code, message)
    end
    return answer
end

local function decide_one(self, verb, key, limit, cost, options, acquire)
    local prepared, err, name = requests.one(key, limit, cost, options, acquire)
    if not prepared then
        return nil, err, name
    end
    return decide(self, verb, prepared, 1, options or {})
end

-- Decides, and charges if allowed.
function methods:take(key, limit, cost, options)
    return decide_one(self, "take", key, limit, cost, options, false)
end

-- What take would answer. It charges nothing.
function methods:peek(key, limit, cost, options)
    return decide_one(self, "peek", key, limit, cost, options, false)
end

-- Takes, and holds a lease of the `concurrent` limit.
function methods:acquire(key, limit, cost, options)
    return decide_one(self, "take", key, limit, cost, options, true)
end

-- ---- the other verbs ----

local function change(self, verb, key, limit, cost, receipt, lease)
    local prepared, err, name = requests.one(key, limit, cost, nil, false)
    if not prepared then
        return nil, err, name
    end
    local call
    call, err, name = make(self, verb, prepared, 1, receipt, lease)
    if not call then
        return nil, err, name
    end
    local code, message = run(self, call)
    if code == ESETTLED then
        return true, "before"
    elseif code ~= 0 then
        return named(code, message)
    end
    return true
end

local function lease_verb(self, verb, key, limit, lease)
    local id, err = arguments.lease(lease)
    if not id then
        return nil, err, "EINVAL"
    end
    return change(self, verb, key, limit, 1, nil, id)
end

-- Starts the time of a lease again. nil, message, "ENOLEASE": it has expired.
function methods:renew(key, limit, lease)
    return lease_verb(self, "renew", key, limit, lease)
end

-- Gives a lease back.
function methods:release(key, limit, lease)
    return lease_verb(self, "release", key, limit, lease)
end

-- Corrects a charge to the real cost. true; true, "before": it was settled before, nothing changed.
function methods:settle(key, limit, receipt, actual)
    local good, err = requests.receipt(receipt, actual)
    if not good then
        return nil, err, "EINVAL"
    end
    return change(self, "settle", key, limit, actual, receipt)
end

-- Forgets a key, under all limits.
function methods:reset(key)
    local prepared, err, name = requests.key(key)
    if not prepared then
        return nil, err, name
    end
    local call
    call, err, name = make(self, "reset", prepared, 1)
    if not call then
        return nil, err, name
    end
    local code, message = run(self, call)
    if code ~= 0 then
        return named(code, message)
    end
    return true
end

-- ---- several keys ----

local function ask_all(self, verb, list, options)
    local prepared, n, name = requests.all(list, options)
    if not prepared then
        return nil, n, name
    end
    return decide(self, verb, prepared, n, options or {})
end

-- Takes all of {key =, limit =, cost =, least =, acquire =} or nothing.
function methods:take_all(list, options)
    return ask_all(self, "take", list, options)
end

-- take_all that charges nothing. One request only: Redis peeks at one key at a time.
function methods:peek_all(list, options)
    return ask_all(self, "peek", list, options)
end

local function refused_row(code, message)
    local _, text, name = named(code, message)
    return {allowed = false, degraded = false, ["local"] = false, code = name, error = text}
end

local function take_some(self, calls, answers, from)
    local codes, messages = self.link:ask_all(calls)
    for i, call in ipairs(calls) do
        local code, message = settle_code(self, call, codes[i], messages[i])
        local answer = code == 0 and answered(call) or nil
        count(self, answer)
        answers[from + i] = answer or refused_row(code, message)
    end
end

-- Decides independent requests, each by itself, 32 in a round trip. One that was not decided has
-- `code` and `error`, and is not allowed.
function methods:take_many(list)
    local ok, err, name = requests.is_list(list, MANY_MAX)
    if not ok then
        return nil, err, name
    end
    local made = {}
    for i = 1, #list do
        local prepared
        prepared, err, name = requests.nth(list, i)
        if not prepared then
            return nil, err, name
        end
        made[i], err, name = make(self, "take", prepared, 1)
        if not made[i] then
            return nil, "request " .. i .. ": " .. err, name
        end
    end
    local answers = {}
    for from = 0, #made - 1, MANY_AT_ONCE do
        local some = {}
        for i = 1, MANY_AT_ONCE do
            some[i] = made[from + i]
        end
        take_some(self, some, answers, from)
    end
    return answers
end

-- Takes as soon as it is allowed, within so many seconds. Other requests go on meanwhile.
function methods:wait(key, limit, cost, seconds, options)
    return waiting.wait(self, key, limit, cost, seconds, options)
end

-- ---- the store ----

-- true if the server decides now; otherwise nil, why.
function methods:check()
    local prepared, err, name = requests.one("resty.weir", "fixed-window 1/s", 0, nil, false)
    if not prepared then
        return nil, err, name
    end
    local call
    call, err, name = make(self, "peek", prepared, 1)
    if not call then
        return nil, err, name
    end
    local code, message = self.link:ask(call)
    if code ~= 0 then
        return named(code, message)
    end
    return true
end

-- What this worker was answered so far.
function methods:counts()
    local copy = {}
    for key, value in pairs(self.tally) do
        copy[key] = value
    end
    return copy
end

function methods:info()
    return nil, "a redis:// store has no zone to tell of", "EUNSUPPORTED"
end

-- For tests: stops the clock at this time; nil: the clock of the server again.
function methods:set_time(time_us)
    local code = C.weir_redis_set_time(self.redis, time_us or -1)
    if code ~= 0 then
        return named(code)
    end
    return true
end

return _M
