-- What callers give: keys, limits, costs, options. Every mistake is named, with its value and what
-- was expected. All of these return the good value, or nil and the message.

local ffi = require "ffi"
local library = require "resty.weir.library"

local C, failure = library.C, library.error
local type, tostring, floor = type, tostring, math.floor
local format, sub = string.format, string.sub

local KEY_MAX = 65536
local COST_MAX = 1000000000000
local WAIT_MAX = 31622400 -- seconds: 366 days
local LEASE_MAX = 2 ^ 47 - 1

local _M = {KEY_MAX = KEY_MAX, COST_MAX = COST_MAX}

-- A value for people: text in quotes, shortened; numbers with all their digits.
local function show(value)
    if type(value) == "string" then
        local text = #value > 40 and sub(value, 1, 40) .. "…" or value
        return format("%q", text)
    elseif type(value) == "number" then
        if value == floor(value) and value > -1e15 and value < 1e15 then
            return format("%.0f", value)
        end
        return format("%.17g", value)
    elseif value == nil then
        return "nil"
    end
    return "(a " .. type(value) .. ")"
end
_M.show = show

function _M.key(key)
    if type(key) == "string" and #key >= 1 and #key <= KEY_MAX then
        return key
    elseif type(key) ~= "string" then
        return nil, "invalid key " .. show(key) .. ": expected a string of 1 to 65536 bytes"
    end
    return nil, format("invalid key of %d bytes: expected 1 to 65536", #key)
end

-- A whole number from `least` to `most`.
function _M.whole(name, value, least, most)
    if type(value) ~= "number" or not (value >= least and value <= most) or value ~= floor(value)
    then
        return nil, format("invalid %s %s: expected a whole number from %s to %s", name,
                           show(value), show(least), show(most))
    end
    return value
end

function _M.cost(value)
    return _M.whole("cost", value, 0, COST_MAX)
end

-- Seconds to microseconds, or -2 for any; rounded down, so that nobody waits longer than he said.
function _M.wait(value)
    if value == "any" then
        return -2
    end
    if type(value) ~= "number" or not (value >= 0 and value <= WAIT_MAX) then
        return nil, format("invalid wait %s: expected 0 to 31622400 seconds, or \"any\"",
                           show(value))
    end
    return floor(value * 1000000 + 0.5)
end

-- The id of a lease: decimal digits, or the number itself.
function _M.lease(value)
    local number = value
    if type(value) == "string" and #value <= 15 and string.find(value, "^%d+$") then
        number = tonumber(value)
    end
    if type(number) ~= "number" or not (number >= 1 and number <= LEASE_MAX) or
        number ~= floor(number) then
        return nil, "invalid lease " .. show(value) .. ": expected the lease of a decision"
    end
    return number
end

-- ---- options ----

local OPTIONS = {
    take = {wait = true, least = true, detail = true, into = true},
    wait = {detail = true, into = true, acquire = true},
    take_all = {wait = true, detail = true, into = true},
    request = {key = true, limit = true, cost = true, wait = true, least = true, acquire = true},
}

local seen = setmetatable({}, {__mode = "k"}) -- tables that were looked at before

local function look(options, kind)
    local known = OPTIONS[kind]
    for name in pairs(options) do
        if not known[name] then
            local names = {}
            for other in pairs(known) do
                names[#names + 1] = other
            end
            table.sort(names)
            return nil, "unknown option " .. show(name) .. ": there are " ..
                        table.concat(names, ", ")
        end
    end
    if options.into ~= nil and type(options.into) ~= "table" then
        return nil, "invalid into " .. show(options.into) .. ": expected a table"
    end
    seen[options] = kind
    return options
end

-- The names are looked at once per table: a table that is used again costs nothing.
function _M.options(options, kind)
    if type(options) ~= "table" then
        return nil, "invalid options " .. show(options) .. ": expected a table"
    end
    if seen[options] == kind then
        return options
    end
    return look(options, kind)
end

-- ---- limits ----

local CACHED = 1000 -- texts in each half of the cache
local young, old, count = {}, {}, 0
local limit_type = ffi.typeof("weir_limit *")
local slot = ffi.new("weir_limit *[1]")

local function keep(text, limit)
    if count >= CACHED then
        young, old, count = {}, young, 0
    end
    young[text], count = limit, count + 1
    return limit
end

-- Makes a collected limit of what C gave.
function _M.own(pointer)
    return ffi.gc(pointer, C.weir_limit_free)
end

local function parse(text)
    if C.weir_limit_parse_n(text, #text, slot, failure) ~= 0 then
        return nil, ffi.string(failure.message)
    end
    return _M.own(slot[0])
end

-- Limit text, or what resty.weir's limit() made of it. The cache keeps up to 2000 texts; those that
-- were not used for longest go first.
function _M.limit(given)
    local limit = young[given]
    if limit then
        return limit
    end
    if type(given) ~= "string" then
        if type(given) == "cdata" and ffi.istype(limit_type, given) and given ~= nil then
            return given
        end
        return nil, "invalid limit " .. show(given) ..
                    ": expected text like \"token-bucket 10/s burst 20\"", "EINVAL"
    end
    limit = old[given]
    if limit then
        return keep(given, limit)
    end
    local parsed, err = parse(given)
    if not parsed then
        return nil, err, "ESYNTAX"
    end
    return keep(given, parsed)
end

return _M
