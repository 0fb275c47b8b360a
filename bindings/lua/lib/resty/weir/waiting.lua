-- Waiting without blocking: ngx.sleep, while the worker serves others. The same for all stores.
--
-- Limits that give reservations (token-bucket, leaky-bucket, smooth, warmup) are asked once, with
-- the time that is left as the longest delay. The others say when to ask again. Slots of
-- `concurrent` may be released earlier, so they are asked for with short pauses.

local ffi = require "ffi"
local C = require("resty.weir.library").C
local arguments = require "resty.weir.arguments"

local ceil, min, max = math.ceil, math.min, math.max

local PAUSE_FIRST, PAUSE_MOST = 0.010, 0.250 -- seconds between two questions for a slot

local SLEEPS = {rewrite = true, access = true, content = true, timer = true, ssl_cert = true,
                ssl_session_fetch = true, ssl_client_hello = true, preread = true,
                server_rewrite = true}

-- Limits that give a reservation, or say that there is none in time.
local RESERVES = {["token-bucket"] = true, smooth = true, warmup = true}

local _M = {}

-- nil, or why this phase of nginx cannot wait.
function _M.refusal(what)
    local phase = ngx.get_phase()
    if SLEEPS[phase] then
        return nil
    end
    return what .. " cannot be used in the phase " .. phase .. " of nginx, which can neither sleep " ..
           "nor use sockets: use it in access_by_lua or content_by_lua, or in ngx.timer.at"
end

-- Sleeps whole milliseconds, as nginx does, but never too short.
local function sleep(seconds)
    ngx.sleep(ceil(seconds * 1000) / 1000)
end

-- One question, with the options of the caller and one row per limit.
local function ask(store, key, limit, cost, options, left)
    local asked = {detail = true, into = options.into, wait = left}
    if options.acquire then
        return store:acquire(key, limit, cost, asked)
    end
    return store:take(key, limit, cost, asked)
end

-- Whether asking again is of no use: a limit never admits it, or gives out its turns in order and
-- has none in time. A full leaky bucket, too, if its queue takes too long: what costs nothing is
-- told so at once.
local function is_hopeless(store, key, limit, rows, left)
    local full = false
    for i, row in ipairs(rows) do
        local kind = ffi.string(C.weir_limit_kind(limit, i - 1))
        if not row.allowed and (row.retry_after_us < 0 or RESERVES[kind]) then
            return true
        end
        full = full or not row.allowed and kind == "leaky-bucket"
    end
    if not full then
        return false
    end
    local free = store:peek(key, limit, 0, {detail = true, wait = left})
    for i, row in ipairs(free and free.rows or {}) do
        if not row.allowed and ffi.string(C.weir_limit_kind(limit, i - 1)) == "leaky-bucket" then
            return true
        end
    end
    return free == nil
end

-- How many seconds to sleep before the next question; nil: it would be too late.
local function pause(limit, rows, asked, left)
    local certain, slots = 0, 0
    for i, row in ipairs(rows) do
        local seconds = row.allowed and 0 or row.retry_after_us / 1000000
        if ffi.string(C.weir_limit_kind(limit, i - 1)) == "concurrent" then
            slots = max(slots, seconds)
        else
            certain = max(certain, seconds)
        end
    end
    if certain > left or left <= 0 then
        return nil
    end
    slots = min(slots, PAUSE_FIRST * 2 ^ min(asked, 5), PAUSE_MOST)
    return max(min(max(certain, slots), left), 0.001)
end

-- Answers without rows unless they are wanted, as take does.
local function finish(answer, options)
    if not options.detail then
        answer.rows = nil
    end
    return answer
end

function _M.wait(store, key, given, cost, seconds, given_options)
    local refused = _M.refusal("wait")
    if refused then
        return nil, refused, "EUNSUPPORTED"
    end
    local options, err = arguments.options(given_options or {}, "wait")
    if not options then
        return nil, err, "EINVAL"
    end
    local wait, wrong = arguments.wait(seconds)
    if not wait then
        return nil, wrong, "EINVAL"
    end
    local limit, message, name = arguments.limit(given)
    if not limit then
        return nil, message, name
    end
    local left = wait == -2 and math.huge or wait / 1000000
    local deadline, asked = ngx.now() + left, 0
    while true do
        local most = left == math.huge and "any" or max(left, 0)
        local answer
        answer, message, name = ask(store, key, limit, cost, options, most)
        if not answer then
            return nil, message, name
        end
        if answer.allowed then
            if answer.delay_us > 0 then
                sleep(answer.delay_us / 1000000)
            end
            return finish(answer, options)
        end
        local rows = answer.rows
        local more = not is_hopeless(store, key, limit, rows, most) and
                     pause(limit, rows, asked, left)
        if not more then
            return finish(answer, options)
        end
        asked = asked + 1
        sleep(more)
        left = deadline - ngx.now()
    end
end

return _M
