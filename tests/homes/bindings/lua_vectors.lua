-- Runs golden vectors (tests/vectors/README.md) through a store of resty.weir, every field.
--
--     return require("lua_vectors").run(store, {"/path/a.vec", …})   →  passed, failed, {what failed, …}

local weir = require "resty.weir"

local _M = {}
local passed, failed, said

local function check(good, where, ...)
    if good then
        passed = passed + 1
        return true
    end
    failed = failed + 1
    if #said < 20 then
        local words = {where}
        for i = 1, select("#", ...) do
            words[#words + 1] = tostring((select(i, ...)))
        end
        said[#said + 1] = table.concat(words, " ")
    end
end

local NAMES = {"allowed", "limit", "remaining", "retry_after_us", "reset_after_us", "delay_us", "granted"}

local function numbers(text)
    local list = {}
    for word in string.gmatch(text, "%S+") do
        list[#list + 1] = tonumber(word)
    end
    return list
end

-- Six or seven numbers against a decision or a row.
local function compare(got, wanted, where)
    for i, number in ipairs(numbers(wanted)) do
        local value = got[NAMES[i]]
        if value == true then value = 1 elseif value == false then value = 0 end
        check(value == number, where, NAMES[i], string.format("%.0f", value or -2), "expected", number)
    end
end

local function options(wait, least, into)
    local given = {detail = true, into = into}
    if wait == "any" then
        given.wait = "any"
    elseif wait ~= "default" then
        given.wait = tonumber(wait) / 1000000
    end
    given.least = least
    return given
end

-- "5..10" is a least of 5 and a cost of 10.
local function costs(text)
    local least, cost = string.match(text, "^(%d+)%.%.(%d+)$")
    return tonumber(cost or text), tonumber(least)
end

local Case = {}
Case.__index = Case

function Case:decide(verb, words, wanted, where)
    local cost, least = costs(words[2])
    local name = verb == "acquire" and words[3]
    local wait = words[verb == "acquire" and 4 or 3]
    local answer, err = self.store[verb](self.store, self.key, self.limit, cost, options(wait, least, self.into))
    if not check(answer, where, err) then
        self.answer = nil
        return
    end
    compare(answer, wanted, where)
    check(answer.time_us == tonumber(words[1]), where, "time_us", answer.time_us)
    check(answer.charged == (answer.allowed and verb ~= "peek" and answer.granted or 0), where, "charged", answer.charged)
    check(answer.degraded == false, where, "degraded")
    check(answer["local"] == false, where, "local")
    check((answer.lease ~= nil) == (verb == "acquire" and answer.allowed), where, "lease")
    if answer.charged == 0 then
        check(weir.receipt(answer) == "w1-" .. words[1] .. "-0", where, "receipt", weir.receipt(answer))
    else
        local receipt = string.format("^w3%%-%s%%-%.0f%%-%%d+$", words[1], answer.charged)
        check(string.find(weir.receipt(answer), receipt), where, "receipt", weir.receipt(answer))
    end
    if name and answer.allowed then
        self.leases[name] = answer.lease
    end
    self.answer = answer
end

local verbs = {}

function verbs.take(case, words, wanted, where) return case:decide("take", words, wanted, where) end
function verbs.peek(case, words, wanted, where) return case:decide("peek", words, wanted, where) end
function verbs.acquire(case, words, wanted, where) return case:decide("acquire", words, wanted, where) end

-- Guava's traces tell only whether and how long to wait.
function verbs.grant(case, words, wanted, where)
    local cost = costs(words[2])
    local answer, err = case.store:take(case.key, case.limit, cost, options(words[3]))
    if check(answer, where, err) then
        local two = numbers(wanted)
        check((answer.allowed and 1 or 0) == two[1] and answer.delay_us == two[2], where, answer.delay_us, wanted)
    end
end

function verbs.row(case, words, wanted, where)
    local row = case.answer and case.answer.rows[tonumber(words[1]) + 1]
    if check(row, where, "no such row") then
        compare(row, wanted, where)
    end
end

function verbs.bind(case, words, _, where)
    check(case.answer and case.answer.binding == tonumber(words[1]), where, "binding", case.answer and case.answer.binding)
end

function verbs.settle(case, words, wanted, where)
    local receipt = "w1-" .. words[2] .. "-" .. words[3]
    local ok, err, code = case.store:settle(case.key, case.limit, receipt, tonumber(words[4]))
    if wanted == "refused" then
        check(ok == nil and code == "EUNSUPPORTED", where, err)
    else
        check(ok == true, where, err)
    end
end

function verbs.reset(case, _, _, where)
    local ok, err = case.store:reset(case.key)
    check(ok, where, err)
end

local function lease_verb(verb)
    return function(case, words, wanted, where)
        local lease = case.leases[words[2]] or "1"
        local ok, err, code = case.store[verb](case.store, case.key, case.limit, lease)
        if wanted == "1" then
            check(ok == true, where, err)
        else
            check(ok == nil and code == "ENOLEASE", where, tostring(ok), tostring(err))
        end
    end
end
verbs.renew, verbs.release = lease_verb("renew"), lease_verb("release")

-- Texts of parse.vec.
function verbs.ok(_, _, _, where, rest)
    local text, canonical = string.match(rest, "^(.-) => (.*)$")
    check(weir.limit_text(text) == canonical, where, weir.limit_text(text))
    check(weir.limit_text(canonical) == canonical, where, "canonical")
end
function verbs.bad(_, _, _, where, rest)
    local limit, err, code = weir.limit(rest)
    check(limit == nil and code == "ESYNTAX" and string.find(err, "column %d+"), where, tostring(err))
end

local function run_line(case, place, line)
    local verb, rest = string.match(line, "^(%S+) ?(.*)$")
    if verb == "case" then
        case.key, case.leases, case.answer = place, {}, nil
        return
    elseif verb == "limit" then
        case.limit = rest
        return
    end
    local head, wanted = string.match(rest, "^(.-) = (.*)$")
    local words = {}
    for word in string.gmatch(head or rest, "%S+") do
        words[#words + 1] = word
    end
    if verbs[verb] == nil then
        return check(false, place, "unknown verb", verb)
    end
    if verb ~= "row" and verb ~= "bind" and verb ~= "ok" and verb ~= "bad" then
        assert(case.store:set_time(tonumber(words[1])))
    end
    verbs[verb](case, words, wanted, place, rest)
end

-- `into`: decisions go into one table again and again.
function _M.run(store, paths, into)
    passed, failed, said = 0, 0, {}
    local case = setmetatable({store = store, leases = {}, into = into and {} or nil}, Case)
    for _, path in ipairs(paths) do
        local number, name = 0, string.match(path, "[^/]+$")
        for line in io.lines(path) do
            number = number + 1
            if line ~= "" and string.sub(line, 1, 1) ~= "#" then
                run_line(case, name .. ":" .. number, line)
            end
        end
    end
    assert(store:set_time(nil))
    return passed, failed, said
end

return _M
