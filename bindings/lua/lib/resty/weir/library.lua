-- Finds libweir.so, tells LuaJIT what is in it, and makes sure that both speak of the same thing.
--
-- `require` gives {C = the library, error = a weir_error, name = …}. Whoever uses `error` reads it
-- at once: the next call overwrites it. Nothing here yields, so nobody comes in between.

if not rawget(_G, "jit") then
    error("resty.weir needs LuaJIT: this is " .. (_VERSION or "another Lua") ..
          ", which has no FFI", 0)
end

local found, ffi = pcall(require, "ffi")
if not found then
    error("resty.weir needs the FFI of LuaJIT, which this build leaves out", 0)
end

local OLDEST = 100 -- as weir_version_number says it: 10000 per major, 100 per minor version
local SONAME = "libweir.so.0"

ffi.cdef [[
typedef struct weir_store weir_store;
typedef struct weir_limit weir_limit;
typedef struct { int code; int column; char message[512]; } weir_error;
typedef struct { const void *data; size_t len; } weir_key;
typedef struct {
    int32_t kind; bool nodelay; uint8_t unit, from_month, from_day;
    int64_t count, period_us, burst, delay, precision_us, burst_for_us, over_us, cold_millionths,
            zone_minutes, cost;
    uint64_t spare[5];
} weir_limit_numbers;
typedef struct {
    int64_t limit, remaining, retry_after_us, reset_after_us, delay_us, time_us, charged;
    uint64_t lease;
    bool allowed, degraded;
    uint8_t binding;
    uint8_t receipt[5];
    int32_t code;
    bool full, local, uneven, closed;
    int64_t granted;
    uint64_t spare[1];
} weir_decision;
typedef struct {
    weir_key key;
    const weir_limit *limit;
    int64_t cost, wait_us;
    weir_decision *detail;
    bool acquire;
    uint8_t spare_bytes[7];
    const void *hashed;
    weir_error *error;
    int64_t least;
    uint64_t spare[2];
    int64_t waited_us;
} weir_request;
typedef struct {
    uint64_t allowed, denied, delayed, failed, degraded, spare[3];
} weir_counts;
typedef struct {
    uint64_t size, keys, capacity, large_bytes, large_used, limits, evicted_fresh, evicted_unused,
             evicted_soonest, repairs, refused, limits_max, evicted_receipts, spare[3];
} weir_zone_info;

const char *weir_version(void);
int weir_version_number(void);
size_t weir_sizeof(const char *structure);
const char *weir_errname(int code);
const char *weir_strerror(int code);

int weir_limit_parse_n(const char *text, size_t len, weir_limit **ret, weir_error *err);
int weir_limit_make(const weir_limit_numbers *numbers, size_t n, weir_limit **ret, weir_error *err);
void weir_limit_free(weir_limit *limit);
size_t weir_limit_count(const weir_limit *limit);
const char *weir_limit_text(const weir_limit *limit);
const char *weir_limit_kind(const weir_limit *limit, size_t i);
int64_t weir_limit_cost(const weir_limit *limit, size_t i);

int weir_store_open(const char *url, weir_store **ret, weir_error *err);
void weir_store_close(weir_store *store);
int weir_store_set_time(weir_store *store, int64_t time_us);
int weir_store_info(weir_store *store, weir_zone_info *ret);
int weir_store_counts(const weir_store *store, weir_counts *ret);
int weir_store_check(weir_store *store, weir_error *err);

int weir_take_n(weir_store *store, const char *key, size_t len, const weir_limit *limit,
                int64_t cost, weir_decision *ret, weir_error *err);
int weir_peek_n(weir_store *store, const char *key, size_t len, const weir_limit *limit,
                int64_t cost, weir_decision *ret, weir_error *err);
int weir_acquire_n(weir_store *store, const char *key, size_t len, const weir_limit *limit,
                   int64_t cost, weir_decision *ret, weir_error *err);
int weir_renew_n(weir_store *store, const char *key, size_t len, const weir_limit *limit,
                 uint64_t lease, weir_error *err);
int weir_release_n(weir_store *store, const char *key, size_t len, const weir_limit *limit,
                   uint64_t lease, weir_error *err);
int weir_settle_n(weir_store *store, const char *key, size_t len, const weir_limit *limit,
                  const char *receipt, int64_t actual_cost, weir_error *err);
int weir_reset_n(weir_store *store, const char *key, size_t len, weir_error *err);
int weir_take_all(weir_store *store, const weir_request *requests, size_t n, weir_decision *ret);
int weir_peek_all(weir_store *store, const weir_request *requests, size_t n, weir_decision *ret);
int weir_take_many(weir_store *store, const weir_request *requests, size_t n, weir_decision *rets);
void weir_receipt(weir_decision *decision, char *ret);
int weir_fields(const char *style, const weir_request *requests, size_t n,
                const char *const *names, const weir_decision *folded, char *ret, size_t size,
                weir_error *err);

typedef struct weir_redis weir_redis;
typedef struct weir_redis_call weir_redis_call;
int weir_redis_open(const char *url, weir_redis **ret, weir_error *err);
void weir_redis_close(weir_redis *redis);
const char *weir_redis_host(const weir_redis *redis);
int weir_redis_port(const weir_redis *redis);
int weir_redis_tls(const weir_redis *redis);
int64_t weir_redis_deadline_us(const weir_redis *redis);
int weir_redis_ask(weir_redis *redis, const char *verb, const weir_request *requests, size_t n,
                   const char *receipt, uint64_t lease, weir_redis_call **ret, weir_error *err);
void weir_redis_call_free(weir_redis_call *call);
int weir_redis_write(weir_redis_call *call, bool fresh, const char **ret, size_t *ret_len,
                     weir_error *err);
int weir_redis_read(weir_redis_call *call, const char *data, size_t len, size_t *ret_used,
                    weir_error *err);
bool weir_redis_is_clean(const weir_redis_call *call);
int weir_redis_fall_back(weir_redis_call *call, weir_error *err);
const weir_decision *weir_redis_decision(const weir_redis_call *call, int row);
int weir_redis_set_time(weir_redis *redis, int64_t time_us);
]]

-- The folders of package.cpath (lua_package_cpath), then those of the system.
local function candidates()
    local names = {}
    for template in string.gmatch(package.cpath or "", "[^;]+") do
        local folder = string.match(template, "^(.*/)[^/]*%?[^/]*$")
        if folder and not string.find(folder, "?", 1, true) then
            names[#names + 1] = folder .. SONAME
        end
    end
    return names
end

local function is_there(path)
    local file = io.open(path, "rb")
    if file then
        file:close()
    end
    return file ~= nil
end

local function load()
    for _, path in ipairs(candidates()) do
        if is_there(path) then
            local ok, library = pcall(ffi.load, path)
            if not ok then
                error("resty.weir cannot load " .. path .. ": " .. tostring(library), 0)
            end
            return library, path
        end
    end
    local ok, library = pcall(ffi.load, SONAME)
    if not ok then
        error("resty.weir finds no " .. SONAME .. " (" .. tostring(library) .. "): install weir, " ..
              "or name the folder of the library in lua_package_cpath, as \"/folder/?.so;;\"", 0)
    end
    return library, SONAME
end

-- A library of another version would read our structures as something else.
local function check(C, name)
    local ok, number = pcall(function() return C.weir_version_number() end)
    if not ok or number < OLDEST or number >= 10000 then
        local version = ok and ffi.string(C.weir_version()) or "an older version"
        local oldest = string.format("%d.%d.%d", OLDEST / 10000, OLDEST / 100 % 100, OLDEST % 100)
        error("resty.weir needs libweir " .. oldest .. " or newer, and " .. name .. " is " .. version, 0)
    end
    for _, structure in ipairs({"weir_error", "weir_limit_numbers", "weir_decision", "weir_request",
                                "weir_counts", "weir_zone_info"}) do
        local theirs, ours = tonumber(C.weir_sizeof(structure)), ffi.sizeof(structure)
        if theirs ~= ours then
            error("resty.weir does not fit " .. name .. ": its " .. structure .. " has " .. theirs ..
                  " bytes, here it has " .. ours .. "; install both from one version of weir", 0)
        end
    end
    for _, symbol in ipairs({"weir_take_n", "weir_fields", "weir_redis_ask"}) do
        if not pcall(function() return C[symbol] end) then
            error("resty.weir does not fit " .. name .. ": it has no " .. symbol ..
                  "; install both from one version of weir", 0)
        end
    end
end

local C, name = load()
check(C, name)

return {C = C, error = ffi.new("weir_error"), name = name}
