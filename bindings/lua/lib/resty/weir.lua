-- weir in nginx: one limit, one meaning, everywhere it is enforced.
--
--     local weir = require "resty.weir"
--     local store = assert(weir.open("shm:/limits?size=16m"))
--     local decision, err = store:take("ip:" .. weir.address_key(), "token-bucket 10/s burst 20")
--
-- README.md beside lib/ is the manual.

local library = require "resty.weir.library"
local address = require "resty.weir.address"
local arguments = require "resty.weir.arguments"
local decision = require "resty.weir.decision"
local zone = require "resty.weir.zone"

local ffi = require "ffi"
local C = library.C

local STORES_MAX = 64

local _M = {
    _VERSION = ffi.string(C.weir_version()),
    address_key = address.key,
    receipt = decision.receipt,
    retry_after = decision.retry_after,
    fields = decision.fields,
}

local stores, count = {}, 0 -- of this worker, by address

local function open(url, options)
    if string.find(url, "^rediss?[+:]") then
        return require("resty.weir.redis").open(url, options)
    end
    return zone.open(url)
end

-- The store of an address. Every worker opens it once; it stays open as long as the worker lives.
-- `options` are of redis:// stores: pool and idle.
function _M.open(url, options)
    if type(url) ~= "string" then
        return nil, "invalid address " .. arguments.show(url) ..
                    ": expected text like \"shm:/limits?size=16m\"", "EURL"
    end
    local store = stores[url]
    if store then
        return store
    end
    if string.find(url, "\0", 1, true) then
        return nil, "invalid address " .. arguments.show(url) .. ": it has a NUL byte", "EURL"
    end
    if count >= STORES_MAX then
        return nil, "too many stores: this worker has 64 open already; use the same addresses again",
               "EINVAL"
    end
    local err, name
    store, err, name = open(url, options)
    if not store then
        return nil, err, name
    end
    stores[url], count = store, count + 1
    return store
end

-- Reads limit text once. Text can be used everywhere instead: it is remembered.
function _M.limit(text)
    return arguments.limit(text)
end

-- The canonical text of a limit.
function _M.limit_text(given)
    local limit, err, name = arguments.limit(given)
    if not limit then
        return nil, err, name
    end
    return ffi.string(C.weir_limit_text(limit))
end

-- Sets the fields of a decision in the answer of nginx: RateLimit, RateLimit-Policy, Retry-After.
function _M.set_fields(answer, asked, style)
    local fields, err, name = decision.fields(answer, asked, style)
    if not fields then
        return nil, err, name
    end
    for field, value in pairs(fields) do
        ngx.header[field] = value
    end
    return true
end

return _M
