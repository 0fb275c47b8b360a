-- Decisions as Lua tables, and what can be told from one: its receipt, the fields of an answer.
--
-- Every number of a decision is whole and at most 2^53, so a Lua number holds it exactly. A lease is
-- text, because tostring() and .. keep only 14 digits of a number.

local ffi = require "ffi"
local library = require "resty.weir.library"
local arguments = require "resty.weir.arguments"

local C, failure = library.C, library.error
local tonumber, type, ceil, floor, format = tonumber, type, math.ceil, math.floor, string.format

local LIMITS_MAX = 16
local FIELDS_SIZE = 12288

local _M = {}

-- The id that all receipts of a call share; nil: none is drawn yet; -1: there is no receipt.
local function receipt_id(d)
    if d.uneven then
        return -1
    end
    local b = d.receipt
    local id = b[0] + 256 * (b[1] + 256 * (b[2] + 256 * (b[3] + 256 * b[4])))
    return id ~= 0 and id or nil
end

-- The table of a weir_decision: a new one, or `into`, whose other members stay.
function _M.of(d, into)
    local lease
    if d.lease ~= 0 then
        lease = format("%.0f", tonumber(d.lease))
    end
    if not into then
        return {
            allowed = d.allowed,
            limit = tonumber(d.limit),
            remaining = tonumber(d.remaining),
            retry_after_us = tonumber(d.retry_after_us),
            reset_after_us = tonumber(d.reset_after_us),
            delay_us = tonumber(d.delay_us),
            time_us = tonumber(d.time_us),
            charged = tonumber(d.charged),
            granted = tonumber(d.granted),
            binding = d.binding,
            degraded = d.degraded,
            closed = d.closed,
            ["local"] = d["local"],
            lease = lease,
            receipt_id = receipt_id(d),
        }
    end
    into.allowed = d.allowed
    into.limit = tonumber(d.limit)
    into.remaining = tonumber(d.remaining)
    into.retry_after_us = tonumber(d.retry_after_us)
    into.reset_after_us = tonumber(d.reset_after_us)
    into.delay_us = tonumber(d.delay_us)
    into.time_us = tonumber(d.time_us)
    into.charged = tonumber(d.charged)
    into.granted = tonumber(d.granted)
    into.binding = d.binding
    into.degraded = d.degraded
    into.closed = d.closed
    into["local"] = d["local"]
    into.lease = lease
    into.receipt = nil
    into.receipt_id = receipt_id(d)
    into.rows = nil
    into.code = nil
    into.error = nil
    return into
end

-- The first n of an array of decisions, as tables.
function _M.rows(decisions, n)
    local rows = {}
    for i = 1, n do
        rows[i] = _M.of(decisions[i - 1])
    end
    return rows
end

-- A table back into a weir_decision, as far as receipts and fields read it.
local function fill(d, t)
    d.limit, d.remaining, d.granted = t.limit, t.remaining, t.granted
    d.retry_after_us, d.reset_after_us, d.delay_us = t.retry_after_us, t.reset_after_us, t.delay_us
    d.time_us, d.charged = t.time_us, t.charged
    d.allowed, d.degraded, d.binding = t.allowed, t.degraded, t.binding
    d.closed = t.closed or false
    d["local"] = t["local"]
    local id = t.receipt_id or 0
    d.uneven = id < 0
    for i = 0, 4 do
        d.receipt[i] = id < 0 and 0 or id % 256
        id = floor(id / 256)
    end
end

local function is_decision(t)
    return type(t) == "table" and type(t.allowed) == "boolean" and type(t.time_us) == "number" and
           type(t.limit) == "number"
end

local function no_decision(t)
    return nil, "invalid decision " .. arguments.show(t) .. ": expected what take() returned",
           "EINVAL"
end

-- ---- receipts ----

local one = ffi.new("weir_decision")
local text = ffi.new("char[64]")

-- The receipt of a take, for settle(). It is made when it is first asked for, and stays the same.
function _M.receipt(t)
    if not is_decision(t) then
        return no_decision(t)
    end
    if not t.receipt then
        ffi.fill(one, ffi.sizeof(one))
        fill(one, t)
        C.weir_receipt(one, text)
        if one.uneven then
            return nil, "there is no receipt: take_all charged its requests different amounts, " ..
                        "so settle each with the receipt of its row (ask with detail)", "ERECEIPT"
        end
        t.receipt = ffi.string(text)
    end
    return t.receipt
end

-- Whole seconds, rounded up; nil: there is nothing to wait for, or waiting does not help.
function _M.retry_after(t)
    if not is_decision(t) then
        return no_decision(t)
    end
    if t.allowed or t.retry_after_us < 0 then
        return nil
    end
    return ceil(t.retry_after_us / 1000000)
end

-- ---- fields ----

local requests = ffi.new("weir_request[?]", LIMITS_MAX)
local details = ffi.new("weir_decision[?]", LIMITS_MAX)
local room -- made when it is first needed

-- The limits of what was asked: one limit, or the requests of take_all.
local function limits_of(asked)
    if type(asked) ~= "table" then
        local limit, err, name = arguments.limit(asked)
        return limit and {limit}, err, name
    end
    local limits = {}
    for i, request in ipairs(asked) do
        local limit, err, name = arguments.limit(type(request) == "table" and request.limit)
        if not limit then
            return nil, err, name
        end
        limits[i] = limit
    end
    if #limits < 1 or #limits > LIMITS_MAX then
        return nil, "invalid requests: expected 1 to 16 of them", "EINVAL"
    end
    return limits
end

-- Puts limits and rows where C reads them; nil: there is not one row per limit.
local function prepare(limits, rows)
    local n = 0
    ffi.fill(requests, ffi.sizeof(requests))
    ffi.fill(details, ffi.sizeof(details))
    for i, limit in ipairs(limits) do
        local count = tonumber(C.weir_limit_count(limit))
        if n + count > #rows or n + count > LIMITS_MAX then
            return nil
        end
        local request = requests[i - 1]
        request.limit, request.detail = limit, details + n
        for j = 0, count - 1 do
            fill(details[n + j], rows[n + j + 1])
        end
        n = n + count
    end
    return n == #rows
end

local function read_fields(said)
    local fields = {}
    for name, value in string.gmatch(said, "([^:\n]+): ([^\n]*)\n") do
        fields[name] = value
    end
    return fields
end

-- {ratelimit = …, ["ratelimit-policy"] = …, ["retry-after"] = …} of a decision under `asked`: the
-- limit, or the requests of take_all. The style is that of the server: docs/SERVER.md.
function _M.fields(t, asked, style)
    if not is_decision(t) then
        return no_decision(t)
    end
    if style ~= nil and type(style) ~= "string" then
        return nil, "invalid style " .. arguments.show(style) .. ": expected text like \"ietf\"",
               "EINVAL"
    end
    local limits, err, name = limits_of(asked)
    if not limits then
        return nil, err, name
    end
    if not prepare(limits, t.rows or {t}) then
        return nil, "the decision does not have one row per limit: take it with detail = true, " ..
                    "and name here what was asked there", "EINVAL"
    end
    room = room or ffi.new("char[?]", FIELDS_SIZE)
    ffi.fill(one, ffi.sizeof(one))
    fill(one, t)
    if C.weir_fields(style or "ietf", requests, #limits, nil, one, room, FIELDS_SIZE, failure) ~= 0
    then
        return nil, ffi.string(failure.message), ffi.string(C.weir_errname(failure.code))
    end
    return read_fields(ffi.string(room))
end

return _M
