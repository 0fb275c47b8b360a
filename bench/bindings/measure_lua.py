#!/usr/bin/env python3
"""Lua's rows of make bench-bindings: what a take costs in an nginx worker, beside resty.limit.req.

For every line it reads it measures all rows once, in an order by chance, and prints them as JSON: {row: nanoseconds per call}. The original is
measured if $LUA_RESTY_LIMIT_TRAFFIC names the lib/ folder of lua-resty-limit-traffic (Debian has no package of it); otherwise stderr says that
it is missing.
"""
import os
import pathlib
import random
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests"))
from lib import lua_nginx  # noqa: E402

START = """
local ffi = require "ffi"
ffi.cdef "typedef struct { long s, ns; } bench_time; int clock_gettime(int clock, bench_time *ret);"
local keys = {}
for i = 1, 1000 do keys[i] = "user:" .. i end
local store, limit = assert(weir.open("shm:SHM?size=8m")), "token-bucket 1000000/s burst 1000000"
local handle, into = weir.limit(limit), {into = {}}
local function none(key) return key end
local function limiter(name, dict, ...)
    local lim = assert(require(name).new(dict, ...))
    return function(key) return lim:incoming(key, true) end
end
local rows = {
    ["an empty Lua call"] = function(key) return none(key) end,
    ["resty.weir take, limit as text"] = function(key) return store:take(key, limit) end,
    ["resty.weir take, limit object"] = function(key) return store:take(key, handle) end,
    ["resty.weir take, into a table"] = function(key) return store:take(key, handle, 1, into) end,
    ["resty.weir.limit.req"] = limiter("resty.weir.limit.req", "one", 1e6, 1e6),
    ["resty.weir.limit.count"] = limiter("resty.weir.limit.count", "two", 1e9, 1000),
    ["resty.limit.req"] = ORIGINAL and limiter("resty.limit.req", "three", 1e6, 1e6) or nil,
    ["resty.limit.count"] = ORIGINAL and limiter("resty.limit.count", "four", 1e9, 1000) or nil,
}
-- Each row has a loop of its own, compiled for it alone. What it returns is kept, so that LuaJIT cannot leave it out.
local LOOP = [[
    local run, keys, n = ...
    local kept = {}
    return function(from)
        local at = from
        for _ = 1, n do
            at = at % #keys + 1
            kept[1] = assert(run(keys[at]))
        end
    end]]
local time, runs = ffi.new("bench_time"), {}
local function now() ffi.C.clock_gettime(2, time) return tonumber(time.s) * 1e9 + tonumber(time.ns) end
for name, run in pairs(rows) do runs[name] = loadstring(LOOP)(run, keys, 20000) end
package.loaded.bench = function(name)
    ngx.update_time()
    local start = now()
    runs[name](math.floor(start) % 1000)
    return (now() - start) / 20000
end
local names = {}
for name in pairs(rows) do names[#names + 1] = name end
return names
"""


def main():
    original = os.environ.get("LUA_RESTY_LIMIT_TRAFFIC")
    if not original:
        print("resty.limit.* is not measured: $LUA_RESTY_LIMIT_TRAFFIC does not name the lib/ folder of lua-resty-limit-traffic", file=sys.stderr)
    zone = f"/weir-bench-{os.getpid()}"
    dicts = "".join(f"lua_shared_dict {name} 8m;" for name in ("one", "two", "three", "four"))
    try:
        with lua_nginx.Nginx(dicts, package=f"{original}/?.lua;" if original else "") as nginx:
            names = nginx.lua(START.replace("SHM", zone).replace("ORIGINAL", "true" if original else "false"))
            for _ in sys.stdin:
                random.shuffle(names)
                told = {name: nginx.lua(f'return require("bench")("{name}")') for name in names}
                print("{" + ", ".join(f'"{name}": {told[name]:.1f}' for name in sorted(names)) + "}", flush=True)
    finally:
        pathlib.Path(f"/dev/shm{zone}").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
