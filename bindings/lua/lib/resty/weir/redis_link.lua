-- Carries calls to a Redis server over nginx's cosockets: connections from a pool, one deadline for
-- everything, and a rest for a server that does not answer.
--
--   1. A connection goes back into the pool only if every byte of every answer was read. A handler
--      that is killed in the middle of a call takes its connection with it.
--   2. What was sent is not sent again, because it may have been charged, unless the server says
--      that it did nothing.
--   3. No scratch memory is used across a yield: other handlers run meanwhile.

local ffi = require "ffi"
local library = require "resty.weir.library"

local C, failure = library.C, library.error
local max, min = math.max, math.min

local CHUNK = 8192                     -- bytes received at once
local MORE, AGAIN, EUNREACHABLE = 1, 2, -18
local LATE_MOST = 3                    -- deadlines missed in a row, then the server gets a rest
local REST_FIRST, REST_MOST = 0.025, 1 -- seconds
local TELL_SECONDS = 60                -- between two lines about a server that does not decide

local _M = {EUNREACHABLE = EUNREACHABLE}
local mt = {__index = {}}
local methods = mt.__index

local text_slot = ffi.new("const char *[1]")
local size_slot = ffi.new("size_t[1]")

-- A way to the server of `redis` (a weir_redis), for the address `url`.
function _M.new(redis, url, pool_size, idle_seconds)
    local host, port = ffi.string(C.weir_redis_host(redis)), C.weir_redis_port(redis)
    local is_path = string.sub(host, 1, 1) == "/"
    return setmetatable({
        redis = redis,
        name = is_path and host or host .. ":" .. port,
        host = is_path and "unix:" .. host or string.find(host, ":", 1, true) and
               "[" .. host .. "]" or host,
        port = not is_path and port or nil,
        server_name = host,
        tls = C.weir_redis_tls(redis),
        deadline = tonumber(C.weir_redis_deadline_us(redis)) / 1000000,
        pool = "weir-" .. ngx.md5(url),
        pool_size = pool_size,
        idle = idle_seconds * 1000,
        late = 0,      -- deadlines missed in a row
        rest = 0,      -- seconds of the last rest; 0: the server decides
        until_ = 0,    -- when the rest ends
        tells_at = 0,  -- from when on the log may say again that it answers but does not decide
        fallbacks = 0, -- calls of this outage that the server did not decide
    }, mt)
end

-- ---- whether to ask at all ----

-- Whether the server is worth a try. After a rest one call tries it; the others wait for what
-- becomes of that one, but not for ever, since it may be killed.
function methods:may_ask(now)
    if self.rest == 0 then
        return true
    elseif now < self.until_ then
        return false
    end
    self.until_ = now + self.deadline + self.rest
    return true
end

function methods:note_failure(why, is_late)
    self.late = self.late + 1
    if is_late and self.late < LATE_MOST and self.rest == 0 then
        return
    end
    if self.rest == 0 then
        ngx.log(ngx.WARN, "resty.weir: ", self.name, " does not decide (", why,
                "); the fallback of the address does")
    end
    self.rest = self.rest == 0 and REST_FIRST or min(self.rest * 2, REST_MOST)
    self.until_ = ngx.now() + self.rest * (0.5 + 0.5 * math.random())
end

function methods:note_success()
    if self.rest > 0 then
        ngx.log(ngx.WARN, "resty.weir: ", self.name, " decides again; meanwhile ", self.fallbacks,
                " calls were decided by the fallback")
        self.rest, self.fallbacks = 0, 0
    end
    self.late = 0
end

-- It answers, but does not decide: BUSY, MOVED, OOM. That may be so for some keys only, so it gets
-- no rest, and the log has a line per minute instead of two per outage.
function methods:note_undecided(why)
    local now = ngx.now()
    if now >= self.tells_at then
        self.tells_at = now + TELL_SECONDS
        ngx.log(ngx.WARN, "resty.weir: ", self.name, " does not decide (", why,
                "); the fallback of the address does")
    end
end

-- ---- a connection ----

-- Gives the socket what is left of the time; nil: nothing is.
local function set_timeout(sock, deadline)
    local left = (deadline - ngx.now()) * 1000
    if left < 1 then
        return nil
    end
    sock:settimeouts(left, left, left)
    return true
end

-- A connection, and whether it is new; nil, why, whether it is only late.
function methods:connect(deadline)
    local sock = ngx.socket.tcp()
    if not set_timeout(sock, deadline) then
        return nil, "timeout", true
    end
    local options = {pool = self.pool, pool_size = self.pool_size}
    local ok, err
    if self.port then
        ok, err = sock:connect(self.host, self.port, options)
    else
        ok, err = sock:connect(self.host, options)
    end
    if not ok then
        return nil, err, err == "timeout"
    end
    local fresh = sock:getreusedtimes() == 0
    if fresh and self.tls > 0 then
        ok, err = sock:sslhandshake(false, self.server_name, self.tls == 2)
        if not ok then
            sock:close()
            return nil, err, err == "timeout"
        end
    end
    return sock, fresh
end

function methods:give_back(sock, clean)
    if clean then
        sock:setkeepalive(self.idle, self.pool_size)
    else
        sock:close()
    end
end

-- ---- calls over a connection ----

-- The bytes of a call, as a string of its own.
local function written(call, fresh)
    local code = C.weir_redis_write(call, fresh, text_slot, size_slot, failure)
    if code ~= 0 then
        return nil, ffi.string(failure.message), code
    end
    return ffi.string(text_slot[0], size_slot[0])
end

local function send(sock, bytes, deadline)
    if not set_timeout(sock, deadline) then
        return nil, "timeout"
    end
    return sock:send(bytes)
end

-- Reads until a call is answered or to be sent again: its code and what it did not use; nil, why.
local function receive(sock, call, rest, deadline)
    while true do
        local code = MORE
        if rest ~= "" then
            code = C.weir_redis_read(call, rest, #rest, size_slot, failure)
            rest = string.sub(rest, tonumber(size_slot[0]) + 1)
        end
        if code ~= MORE then
            return code, rest, code < 0 and ffi.string(failure.message) or nil
        end
        if not set_timeout(sock, deadline) then
            return nil, "timeout"
        end
        local data, err = sock:receiveany(CHUNK)
        if not data then
            return nil, err
        end
        rest = data
    end
end

-- One call from its first byte to its answer: its code and message; nil, why.
local function exchange(sock, call, fresh, deadline)
    while true do
        local bytes, err, wrong = written(call, fresh)
        if not bytes then
            return wrong, "", err
        end
        fresh = false
        local ok
        ok, err = send(sock, bytes, deadline)
        if not ok then
            return nil, err
        end
        local code, rest, message = receive(sock, call, "", deadline)
        if not code then
            return nil, rest
        elseif code ~= AGAIN then
            return code, rest, message
        elseif rest ~= "" then
            return nil, "the server said more than it was asked"
        end
    end
end

-- Asks the server. The code of the answer, and a message. EUNREACHABLE: it did not decide.
function methods:ask(call)
    ngx.update_time()
    local now = ngx.now()
    if not self:may_ask(now) then
        return EUNREACHABLE, self.name .. " does not answer; it is tried again soon"
    end
    local deadline = now + self.deadline
    local sock, fresh, is_late = self:connect(deadline)
    if not sock then
        self:note_failure(fresh, is_late)
        return EUNREACHABLE, self.name .. ": " .. tostring(fresh)
    end
    local code, rest, message = exchange(sock, call, fresh, deadline)
    if not code then
        sock:close()
        self:note_failure(rest, rest == "timeout")
        return EUNREACHABLE, self.name .. ": " .. tostring(rest)
    end
    local clean = rest == "" and C.weir_redis_is_clean(call)
    self:give_back(sock, clean)
    if code ~= EUNREACHABLE then
        self:note_success()
    elseif clean then
        self:note_undecided(message)
    else
        self:note_failure(message, false)
    end
    return code, message
end

-- Sends calls together and reads their answers in order: codes and messages. A call that is not
-- answered this way, for whatever reason, has no code.
local function exchange_all(sock, calls, deadline, codes, messages)
    local parts = {}
    for i, call in ipairs(calls) do
        local bytes = written(call, false)
        if not bytes then
            return "out of memory"
        end
        parts[i] = bytes
    end
    local ok, err = send(sock, table.concat(parts), deadline)
    if not ok then
        return err
    end
    local rest = ""
    for i, call in ipairs(calls) do
        local code, more, message = receive(sock, call, rest, deadline)
        if not code then
            return more
        end
        codes[i], messages[i], rest = code, message, more
        if code ~= AGAIN and not C.weir_redis_is_clean(call) then
            return message or "the server's reply cannot be read" -- whose the next bytes are?
        end
    end
    return rest ~= "" and "the server said more than it was asked" or nil
end

-- Asks the server for many calls: lists of codes and messages.
function methods:ask_all(calls)
    local codes, messages = {}, {}
    codes[1], messages[1] = self:ask(calls[1]) -- it finds out what the server is
    local others = {unpack(calls, 2)}
    if #others == 0 then
        return codes, messages
    end
    ngx.update_time()
    local deadline = ngx.now() + self.deadline
    local sock, fresh
    if codes[1] ~= EUNREACHABLE then
        sock, fresh = self:connect(deadline)
    end
    if sock and not fresh then
        local some, said = {}, {}
        local err = exchange_all(sock, others, deadline, some, said)
        local clean = not err
        for i, call in ipairs(others) do
            codes[i + 1], messages[i + 1] = some[i] or EUNREACHABLE, said[i] or err
            clean = clean and (some[i] == AGAIN or C.weir_redis_is_clean(call))
        end
        self:give_back(sock, clean)
        if err then
            self:note_failure(err, err == "timeout")
        end
    elseif sock then
        sock:close() -- the pool is empty: a new connection says first who it is
    end
    for i, call in ipairs(others) do
        if codes[i + 1] == AGAIN or (codes[i + 1] == nil and codes[1] ~= EUNREACHABLE) then
            codes[i + 1], messages[i + 1] = self:ask(call)
        end
        codes[i + 1] = codes[i + 1] or EUNREACHABLE
    end
    return codes, messages
end

-- The longest that anything here takes, in seconds: for tests.
function methods:patience()
    return max(self.deadline, REST_MOST)
end

return _M
