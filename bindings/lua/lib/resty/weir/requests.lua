-- What callers ask, as the structures that C reads. Stores of all kinds check their arguments here.
--
-- The structures are shared by all calls: what one prepared is good until the next, or until the
-- handler yields. They point to keys and limits, which LuaJIT does not see. `kept` has those of a
-- list, so that they are not collected before C has read them: the cache of limit texts may forget
-- the first limits of a long list while the last ones are read.

local ffi = require "ffi"
local library = require "resty.weir.library"
local arguments = require "resty.weir.arguments"

local C, failure = library.C, library.error
local type, tonumber = type, tonumber
local show = arguments.show

local LIMITS_MAX = 16
local MANY_KEPT = 64 -- requests for which there always is room
local COST_NONE = ffi.cast("int64_t", 0x8000000000000000ULL)
local WAIT_DEFAULT = COST_NONE + 1
local WAIT_ANY = ffi.cast("int64_t", 0x7fffffffffffffffULL)

local _M = {}

local some = ffi.new("weir_request[?]", LIMITS_MAX)
local many, many_room = ffi.new("weir_request[?]", MANY_KEPT), MANY_KEPT
local kept = {} -- keys and limits of the last list

-- The limit and the cost; nil, message, name.
function _M.check(key, given, cost)
    local limit, err, name = arguments.limit(given)
    if not limit then
        return nil, err, name
    end
    local good, wrong = arguments.key(key)
    if not good then
        return nil, wrong, "EINVAL"
    end
    if cost == nil then
        return limit, 1
    end
    good, wrong = arguments.cost(cost)
    if not good then
        return nil, wrong, "EINVAL"
    end
    return limit, cost
end

-- Fills a request; `options` has wait and least.
local function fill(request, key, limit, cost, options)
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

local NONE = {}

-- One request with options: the structure and its limit; nil, message, name.
function _M.one(key, given, cost, options, acquire)
    local limit, err, name = _M.check(key, given, cost)
    if not limit then
        return nil, err, name
    end
    if options then
        local good, wrong = arguments.options(options, "take")
        if not good then
            return nil, wrong, "EINVAL"
        end
    end
    local ok, wrong = fill(some[0], key, limit, err, options or NONE)
    if not ok then
        return nil, wrong, "EINVAL"
    end
    some[0].acquire = acquire
    return some, limit
end

-- Only a key.
function _M.key(key)
    local good, wrong = arguments.key(key)
    if not good then
        return nil, wrong, "EINVAL"
    end
    ffi.fill(some, ffi.sizeof("weir_request"))
    some[0].key.data, some[0].key.len = key, #key
    return some
end

-- What settle gets beside a key and a limit.
function _M.receipt(receipt, actual)
    if actual == nil then
        return nil, "invalid cost nil: expected the real cost"
    elseif type(receipt) ~= "string" then
        return nil, "invalid receipt " .. show(receipt) ..
                    ": expected what resty.weir's receipt() said"
    end
    return true
end

-- ---- lists ----

function _M.is_list(list, most)
    if type(list) ~= "table" or #list < 1 or #list > most then
        return nil, "invalid requests " .. show(list) .. ": expected a list of 1 to " .. most ..
                    " of them", "EINVAL"
    end
    return true
end

-- Reads request i of a list; how many limits it has. Every member is read once: a table may say
-- something else the second time.
local function read(list, i, request, wait_us)
    local given = list[i]
    local good, err = arguments.options(given, "request")
    if not good then
        return nil, "request " .. i .. ": " .. err, "EINVAL"
    end
    local key = given.key
    local limit, cost, name = _M.check(key, given.limit, given.cost)
    if not limit then
        return nil, "request " .. i .. ": " .. cost, name
    end
    kept[2 * i - 1], kept[2 * i] = key, limit
    local ok, wrong = fill(request, key, limit, cost, given)
    if not ok then
        return nil, "request " .. i .. ": " .. wrong, "EINVAL"
    end
    if given.wait == nil and wait_us then
        request.wait_us = wait_us
    end
    request.acquire = given.acquire and true or false
    return tonumber(C.weir_limit_count(limit))
end

-- Requests of one call: the structures, how many, and how many limits; nil, message, name.
function _M.all(list, options)
    local ok, err, name = _M.is_list(list, LIMITS_MAX)
    if not ok then
        return nil, err, name
    end
    local wait_us
    if options then
        ok, err = arguments.options(options, "take_all")
        if not ok then
            return nil, err, "EINVAL"
        end
        if options.wait ~= nil then
            wait_us, err = arguments.wait(options.wait)
            if not wait_us then
                return nil, err, "EINVAL"
            end
            wait_us = wait_us == -2 and WAIT_ANY or wait_us
        end
    end
    local limits = 0
    kept = {}
    for i = 1, #list do
        local count
        count, err, name = read(list, i, some[i - 1], wait_us)
        if not count then
            return nil, err, name
        end
        limits = limits + count
    end
    return some, #list, limits
end

-- Request i of a list, alone.
function _M.nth(list, i)
    kept = {}
    local count, err, name = read(list, i, some[0])
    if not count then
        return nil, err, name
    end
    return some
end

-- Independent requests: the structures and how many; nil, message, name.
function _M.many(list, most)
    local ok, err, name = _M.is_list(list, most)
    if not ok then
        return nil, err, name
    end
    kept = {}
    if #list > many_room then
        many, many_room = ffi.new("weir_request[?]", #list), #list
    end
    for i = 1, #list do
        ok, err, name = read(list, i, many[i - 1])
        if not ok then
            return nil, err, name
        end
        many[i - 1].error = nil
    end
    return many, #list
end

-- C has read what many() prepared: 10,000 long keys need not stay.
function _M.done()
    kept = {}
end

return _M
