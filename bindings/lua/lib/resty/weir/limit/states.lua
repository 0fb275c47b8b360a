-- Where resty.weir.limit.* keep their states: a zone beside each lua_shared_dict.
--
-- The dict keeps one number per key, its mark. The zone keeps the state, under the mark and the key.
-- So everything that users do with a dict still works: flush_all() and delete(key) forget states,
-- get_keys() lists keys, and a dict that is full forgets the keys that were not used for longest.
-- But a state is read and written in one step of the zone, so no worker comes in between.
--
-- The zone is as large as the dict. It belongs to this nginx: its name has the number of the master
-- process, when that was started, and in which pid namespace. It survives a reload, as the dict
-- does. The next nginx that starts removes what a dead one has left behind.
--
-- The clock is that of nginx, which stands still while a handler runs, as with resty.limit.*.

local ffi = require "ffi"
local library = require "resty.weir.library"

local C, failure = library.C, library.error
local ngx_shared, ngx_now = ngx.shared, ngx.now
local type, tostring, floor = type, tostring, math.floor

ffi.cdef [[
typedef struct { size_t count; char **paths; size_t room[16]; } weir_lua_glob;
int glob(const char *pattern, int flags, void *on_error, weir_lua_glob *ret);
void globfree(weir_lua_glob *globbed);
ssize_t readlink(const char *path, char *ret, size_t size);
ssize_t getrandom(void *ret, size_t size, unsigned int flags);
int kill(int pid, int signal);
]]

local ESRCH = 3
local UNKNOWN = "0" -- when the master was started, where its /proc is hidden from the workers

local SIZE_LEAST = 65536
local MARK_LEAST = 2 ^ 52 -- marks are 2^52 to 2^53-1: no count that others keep is as large
local KEY_MAX = 65528     -- with the 8 bytes of the mark it is a key of weir
local ABUSED = "shdict abused by other users"
local EGONE = -22
local PREFIX = "weir-nginx-"

-- The mark and the key, as the zone gets them.
local buffer = ffi.new("char[?]", KEY_MAX + 8)

local _M = {ENOLEASE = -13, buffer = buffer}

local mark_place = ffi.cast("double *", buffer)
local random = ffi.new("uint32_t[2]")

-- ---- the zone of a dict ----

local function read(path)
    local file = io.open(path, "rb")
    local text = file and file:read("*a")
    if file then
        file:close()
    end
    return text
end

-- When a process was started, in ticks; nil: there is no such process, or /proc hides it (hidepid,
-- ProtectProc).
local function started(pid)
    local stat = read("/proc/" .. pid .. "/stat")
    local rest = stat and string.match(stat, "^.*%)(.*)$")
    local n = 0
    for word in string.gmatch(rest or "", "%S+") do
        n = n + 1
        if n == 20 then -- the 22nd of all
            return word
        end
    end
end

local function pid_namespace()
    local room = ffi.new("char[64]")
    local len = tonumber(ffi.C.readlink("/proc/self/ns/pid", room, 64))
    return len > 0 and string.match(ffi.string(room, len), "%d+") or "0"
end

local function master_pid()
    local ok, process = pcall(require, "ngx.process")
    local pid = ok and process.get_master_pid and process.get_master_pid()
    return pid or ngx.worker.pid()
end

-- Whether the master of a zone is known to be gone.
local function is_gone(pid, ticks)
    local now = started(pid)
    if now and ticks ~= UNKNOWN then
        return now ~= ticks
    end
    return ffi.C.kill(tonumber(pid), 0) ~= 0 and ffi.errno() == ESRCH
end

-- Removes zones whose nginx is gone.
local function sweep(namespace)
    local globbed = ffi.new("weir_lua_glob")
    if ffi.C.glob("/dev/shm/" .. PREFIX .. namespace .. "-*", 0, nil, globbed) ~= 0 then
        return
    end
    for i = 0, tonumber(globbed.count) - 1 do
        local path = ffi.string(globbed.paths[i])
        local pid, ticks = string.match(path, "weir%-nginx%-%d+%-(%d+)%-(%d+)%-")
        if pid and is_gone(pid, ticks) then
            os.remove(path)
        end
    end
    ffi.C.globfree(globbed)
end

local function address(dict_name, size)
    local pid, namespace = master_pid(), pid_namespace()
    local safe = string.gsub(dict_name, "[^%w_]", "_")
    return string.format("shm:/%s%s-%d-%s-%d-%s-%s?size=%d&large=50%%", PREFIX, namespace, pid,
                         started(pid) or UNKNOWN, size, string.sub(safe, 1, 64),
                         string.sub(ngx.md5(dict_name), 1, 8), size), namespace
end

local store_slot = ffi.new("weir_store *[1]")

local function open_store(url)
    if C.weir_store_open(url, store_slot, failure) ~= 0 then
        return nil, ffi.string(failure.message)
    end
    return ffi.gc(store_slot[0], C.weir_store_close)
end

local zones, swept = {}, false

-- Opens the zone of a dict in this worker; nil and why not.
local function ensure(zone)
    if ngx.get_phase() == "init" then
        return nil, "resty.weir.limit.* cannot be asked in init_by_lua: the workers are not there yet"
    end
    local url, namespace = address(zone.name, zone.size)
    if not swept then
        swept = true
        sweep(namespace)
    end
    local store, err = open_store(url)
    zone.url, zone.store = url, store
    return store, err
end

-- The zone of the dict of that name, opened once per worker. Limiters that are made in init_by_lua
-- open it later: the process that runs that need not become the master.
function _M.open(dict_name)
    local zone = zones[dict_name]
    if zone and zone.store then
        return zone
    end
    local dict = type(dict_name) == "string" and ngx_shared[dict_name]
    if not dict then
        return nil, "shared dict not found"
    end
    if not zone then
        local size = dict.capacity and dict:capacity() or 1048576
        zone = {dict = dict, name = dict_name, size = size < SIZE_LEAST and SIZE_LEAST or size}
        zones[dict_name] = zone
    end
    if ngx.get_phase() ~= "init" then
        local ok, err = ensure(zone)
        if not ok then
            return nil, err
        end
    end
    return zone
end

-- ---- the mark of a key ----

local function new_mark()
    if ffi.C.getrandom(random, 8, 0) ~= 8 then
        error("resty.weir: the system has no random numbers", 0)
    end
    return MARK_LEAST + (random[0] % 1048576) * 4294967296 + random[1]
end

local function is_mark(value)
    return type(value) == "number" and value >= MARK_LEAST
end

-- Gives a key a mark. Of several workers that do so at once, one is first, and all use its mark.
-- `adopts` says whether a value is what resty.limit.* left there before a reload.
local function add_mark(dict, key, value, adopts)
    if value ~= nil then
        if not adopts(value) then
            return nil, ABUSED
        end
        dict:delete(key)
    end
    local mark = new_mark()
    local ok, err = dict:add(key, mark)
    if ok then
        return mark
    elseif err ~= "exists" then
        return nil, err
    end
    value, err = dict:get(key)
    if is_mark(value) then
        return value
    end
    return nil, value == nil and (err or "not found") or ABUSED
end

-- Puts a mark and a key into the buffer; their length and the mark.
function _M.put(key, mark)
    if type(key) ~= "string" then
        key = tostring(key)
    end
    local len = #key
    if len > KEY_MAX then
        return nil, "key too long"
    end
    mark_place[0] = mark
    ffi.copy(buffer + 8, key, len)
    return len + 8, mark
end

-- Puts the state's key of (dict, key) into the buffer; its length. Without `create`: nil where the
-- key has no mark. nil and a message where it is none of ours, or not a key.
function _M.find(zone, key, create, adopts)
    if not zone.store then
        local ok, wrong = ensure(zone)
        if not ok then
            return nil, wrong
        end
    end
    local mark, err = zone.dict:get(key)
    if not is_mark(mark) then
        if mark == nil and (not create or err) then
            return nil, err
        elseif mark ~= nil and not create and adopts(mark) then
            return nil
        end
        mark, err = add_mark(zone.dict, key, mark, adopts)
        if not mark then
            return nil, err
        end
    end
    return _M.put(key, mark)
end

-- Sets the clock of the zone to that of nginx, and gives its handle.
function _M.store(zone)
    local store = zone.store
    if C.weir_store_set_time(store, floor(ngx_now() * 1000 + 0.5) * 1000) ~= 0 then
        error("resty.weir: the clock of nginx is out of bounds", 0)
    end
    return store
end

-- Gives so much back of what the state in the buffer was charged now; 0 or a code. The receipt has
-- no id, so that the next one is not taken for this one again.
function _M.give_back(store, len, limit, cost)
    local now = floor(ngx_now() * 1000 + 0.5) * 1000
    local receipt = string.format("w1-%.0f-%.0f", now, cost)
    return C.weir_settle_n(store, buffer, len, limit, receipt, 0, failure)
end

-- ---- what went wrong ----

-- nil and a message. A zone that somebody replaced is opened again, for the next call.
function _M.failed(zone, code)
    local message = failure.code == code and ffi.string(failure.message) or ""
    if code == EGONE then
        zone.store = open_store(zone.url) or zone.store
    end
    return nil, message ~= "" and message or ffi.string(C.weir_strerror(code))
end

-- ---- limits by numbers ----

local numbers = ffi.new("weir_limit_numbers")
local limit_slot = ffi.new("weir_limit *[1]")

-- A limit of {kind =, count =, …}; nil and a message where a number is out of bounds.
function _M.limit(members)
    ffi.fill(numbers, ffi.sizeof(numbers))
    for name, value in pairs(members) do
        numbers[name] = value
    end
    if C.weir_limit_make(numbers, 1, limit_slot, failure) ~= 0 then
        return nil, ffi.string(failure.message)
    end
    return ffi.gc(limit_slot[0], C.weir_limit_free)
end

return _M
