#!/usr/bin/env python3
"""What resty.limit.req, .conn, .count and .traffic document, done by resty.weir.limit.* in a real nginx.

$LUA_RESTY_LIMIT_TRAFFIC names the folder of lua-resty-limit-traffic (its lib/). Then each of these is run with the original,
too: both must say the same.
"""
import os
import re
import sys

from lib import checks, lua_nginx

ORIGINAL = os.environ.get("LUA_RESTY_LIMIT_TRAFFIC")
DICTS = "lua_shared_dict store 1m; lua_shared_dict req 1m; lua_shared_dict conn 1m; lua_shared_dict count 1m;"
START = """
local req, conn = require "LIMIT.req", require "LIMIT.conn"
local count, traffic = require "LIMIT.count", require "LIMIT.traffic"
local dict = ngx.shared.store
for _, name in ipairs({"store", "req", "conn", "count"}) do ngx.shared[name]:flush_all() end
local function show(...)
    local words = {}
    for i = 1, select("#", ...) do
        local value = (select(i, ...))
        words[i] = type(value) == "number" and string.format("%.6g", value) or tostring(value)
    end
    ngx.say(table.concat(words, " "))
end
"""

# name: (what is done, what is said)
SCENES = {
    "req: no dict": ('show(req.new("nowhere", 1, 1))', "nil shared dict not found"),
    "req: what is above the rate waits": ("""
        local lim = req.new("store", 2, 10)
        for i = 1, 3 do show(lim:incoming("foo", true)) end
        show(lim:incoming("bar", true))""", "0 0\n0.5 1\n1 2\n0 0"),
    "req: what is above rate and burst is rejected": ("""
        for burst = 0, 2 do
            dict:flush_all()
            local lim = req.new("store", 2, burst)
            local n = 0
            while lim:incoming("foo", true) do n = n + 1 end
            show(n, lim:incoming("foo", true))
        end""", "1 nil rejected\n2 nil rejected\n3 nil rejected"),
    "req: set_burst counts from the next request on": ("""
        local lim = req.new("store", 2, 0)
        lim:incoming("foo", true)
        show(lim:incoming("foo", true))
        lim:set_burst(1)
        show(lim:incoming("foo", true))""", "nil rejected\n0.5 1"),
    "req: set_rate keeps what is spent": ("""
        local lim = req.new("store", 2, 10)
        for i = 1, 3 do lim:incoming("foo", true) end
        lim:set_rate(4)
        show(lim:incoming("foo", true))""", "0.75 3"),
    "req: without commit nothing is recorded": ("""
        local lim = req.new("store", 2, 10)
        show(lim:incoming("foo"))
        show(lim:incoming("foo", true))
        show(lim:incoming("foo", false))
        show(lim:incoming("foo", false))
        show(lim:incoming("foo", true))""", "0 0\n0 0\n0.5 1\n0.5 1\n0.5 1"),
    "req: uncommit": ("""
        local lim = req.new("store", 40, 40)
        show(lim:uncommit("foo"))
        for i = 1, 4 do show(lim:incoming("foo", true)) show(lim:uncommit("foo")) end
        for i = 1, 3 do show(lim:incoming("foo", true)) end
        show(lim:uncommit("foo"))
        show(lim:incoming("foo", true))""",
                      "nil not found\n0 0\ntrue\n" + "0.025 1\ntrue\n" * 3 + "0.025 1\n0.05 2\n0.075 3\ntrue\n0.075 3"),
    "req: fractions": ("""
        local lim = req.new("store", 0.5, 1.5)
        for i = 1, 3 do show(lim:incoming("foo", true)) end
        local slow = req.new("store", 0.001, 1)
        show(slow:incoming("bar", true))
        show(slow:incoming("bar", true))""", "0 0\n2 1\nnil rejected\n0 0\n1000 1"),
    "req: values of others": ("""
        local lim = req.new("store", 2, 10)
        for _, value in ipairs({32, "a", true}) do
            dict:set("bar", value)
            show(lim:incoming("bar", true))
            show(lim:incoming("bar", false))
        end""", "nil shdict abused by other users\n" * 6),
    "req: the delay keeps the rate": ("""
        local lim = req.new("store", 100, 100)
        local start = ngx.now()
        for i = 1, 50 do ngx.sleep((lim:incoming("foo", true))) end
        local took = ngx.now() - start
        show(took >= 0.489)""", "true"),
    "req: forgetting a key": ("""
        local lim = req.new("store", 1, 0)
        lim:incoming("foo", true)
        dict:delete("foo")
        show(lim:incoming("foo", true))
        show(lim:incoming("foo", true))
        dict:flush_all()
        show(lim:incoming("foo", true))""", "0 0\nnil rejected\n0 0"),
    "req: keys": ("""
        local lim = req.new("store", 1, 0)
        show(lim:incoming(42, true))
        show(lim:incoming("42", true))
        show(lim:incoming("a\\0b", true))
        show(lim:incoming("a\\0c", true))""", "0 0\nnil rejected\n0 0\n0 0"),
    "conn: without leaving": ("""
        local lim = conn.new("store", 2, 3, 1)
        for i = 1, 6 do show(lim:incoming("foo", true)) show(lim:is_committed()) end""",
                              "0 1\ntrue\n0 2\ntrue\n1 3\ntrue\n1 4\ntrue\n2 5\ntrue\nnil rejected\nfalse"),
    "conn: without commit": ("""
        local lim = conn.new("store", 2, 8, 1)
        show(lim:incoming("foo"))
        show(lim:is_committed())
        lim:incoming("foo", true)
        lim:incoming("foo", true)
        show(lim:incoming("foo", false))
        show(lim:is_committed())""", "0 1\nfalse\n1 3\nfalse"),
    "conn: leaving": ("""
        local lim = conn.new("store", 2, 8, 1)
        for i = 1, 4 do lim:incoming("foo", true) end
        show(lim:leaving("foo"))
        show(lim:incoming("foo", true))
        for i = 1, 4 do show(lim:leaving("foo")) end""", "3\n1 4\n3\n2\n1\n0"),
    "conn: another instance of the dict": ("""
        local one, two = conn.new("store", 1, 0, 1), conn.new("store", 1, 0, 1)
        one:incoming("foo", true)
        show(two:incoming("foo", true))
        show(two:leaving("foo"))
        show(two:incoming("foo", true))
        show(one:leaving("foo"))""", "nil rejected\n0\n0 1\n0"),
    "conn: latencies": ("""
        local lim = conn.new("store", 1, 8, 1)
        lim:incoming("foo", true)
        show(lim:incoming("foo", true))
        lim:leaving("foo", 3)
        show(lim:incoming("foo", true))
        lim:leaving("foo", 1)
        show(lim:incoming("foo", true))""", "1 2\n2 2\n1.5 2"),
    "conn: uncommit": ("""
        local lim = conn.new("store", 2, 8, 1)
        for i = 1, 3 do show(lim:incoming("foo", true)) lim:uncommit("foo") end""", "0 1\n" * 3),
    "conn: set_conn and set_burst": ("""
        local lim = conn.new("store", 2, 1, 1)
        for i = 1, 4 do show(lim:incoming("foo", true)) end
        lim:set_conn(5)
        lim:set_burst(2)
        for i = 1, 5 do show(lim:incoming("foo", true)) end""",
                                   "0 1\n0 2\n1 3\nnil rejected\n0 4\n0 5\n1 6\n1 7\nnil rejected"),
    "conn: keys apart": ("""
        local lim = conn.new("store", 1, 0, 1)
        show(lim:incoming("foo", true))
        show(lim:incoming("bar", true))
        show(lim:incoming("foo", true))""", "0 1\n0 1\nnil rejected"),
    "count: until there are none left": ("""
        local lim = count.new("store", 3, 100)
        for i = 1, 5 do show(lim:incoming("foo", true)) end
        show(lim:incoming("bar", true))""", "0 2\n0 1\n0 0\nnil rejected\nnil rejected\n0 2"),
    "count: without commit": ("""
        local lim = count.new("store", 3, 100)
        show(lim:incoming("foo"))
        show(lim:incoming("foo", true))
        show(lim:incoming("foo", false))
        show(lim:incoming("foo", false))""", "0 2\n0 2\n0 1\n0 1"),
    "count: the window begins with its first request": ("""
        local lim = count.new("store", 1, 0.3)
        for i = 1, 2 do
            show(lim:incoming("foo", true))
            show(lim:incoming("foo", true))
            ngx.sleep(0.3)
        end""", "0 0\nnil rejected\n0 0\nnil rejected"),
    "count: uncommit": ("""
        local lim = count.new("store", 2, 100)
        show(lim:uncommit("foo"))
        for i = 1, 3 do show(lim:incoming("foo", true)) show(lim:uncommit("foo")) end""", "2\n" + "0 1\n2\n" * 3),
    "traffic: all of them": ("""
        local limiters = {req.new("req", 3, 2), req.new("req", 2, 3), conn.new("conn", 4, 1, 2), count.new("count", 10, 100)}
        local keys, states = {"foo", "bar", "foo", "bar"}, {}
        for i = 1, 3 do
            show(traffic.combine(limiters, keys, states))
            show(unpack(states))
        end
        show(traffic.combine(limiters, keys, states))
        show(limiters[4]:incoming("bar"))
        show(limiters[3]:incoming("foo"))""",
                             "0\n0 0 1 9\n0.5\n1 1 2 8\n1\n2 2 3 7\nnil rejected\n0 6\n0 4"),
    "traffic: a limiter rejects": ("""
        local limiters = {req.new("req", 3, 2), conn.new("conn", 4, 1, 2), count.new("count", 2, 100)}
        local keys, states = {"foo", "bar", "foo"}, {}
        for i = 1, 4 do show(traffic.combine(limiters, keys, states)) end
        show(unpack(states))""", "0\n0.333333\nnil rejected\nnil rejected\n1 2 0"),
    "traffic: what was counted is given back": ("""
        local function limiter(refuses)
            local it = {n = 0}
            function it:incoming(_, commit)
                if commit then
                    self.n = self.n + 1
                    if refuses then return nil, "no" end
                end
                return 0.1 * self.n, self.n
            end
            function it:uncommit() self.n = self.n - 1 return true end
            return it
        end
        local all = {limiter(), limiter(true), limiter(), limiter()}
        show(traffic.combine(all, {"a", "b", "c", "d"}))
        show(all[1].n, all[2].n, all[3].n, all[4].n)
        show(traffic.combine({limiter(), limiter()}, {"a", "b"}))""", "nil no\n0 1 0 0\n0.1"),
}


def run(nginx, limit, text):
    return nginx.say(START.replace("LIMIT", limit) + text).strip()


def test_documented(check):
    with lua_nginx.Nginx(DICTS, package=f"{ORIGINAL}/?.lua;" if ORIGINAL else "") as nginx:
        for name, (text, wanted) in SCENES.items():
            check.equal(run(nginx, "resty.weir.limit", text), wanted.strip(), name)
            if ORIGINAL:
                check.equal(run(nginx, "resty.limit", text), wanted.strip(), f"{name}, by the original")


# What is our own: bounds, mistakes, where states live.
OWN = {
    "mistakes are named": ("""
        show(req.new("store", 0, 1))
        show(req.new("store", "5", 1))
        show(req.new("store", 0/0, 1))
        show(req.new("store", 1/0, 1))
        show(req.new("store", 1, -1))
        show(req.new("store", 1))
        show(count.new("store", 0, 1))
        show(count.new("store", 5, {}))
        show(conn.new("store", 5, 1, 0))
        show(conn.new("store", -5, 1, 1))
        show(conn.new("store", 5, "x", 1))
        show(req.new(nil, 1, 1))
        show(req.new({}, 1, 1))""", """
        nil invalid rate 0: expected a number above 0
        nil invalid rate "5": expected a number above 0
        nil invalid rate nan: expected a number above 0
        nil invalid rate inf: expected a number above 0
        nil invalid burst -1: expected a number from 0 on
        nil invalid burst nil: expected a number from 0 on
        nil invalid limit 0: expected a number above 0
        nil invalid window (a table): expected seconds above 0
        nil invalid default_conn_delay 0: expected seconds above 0
        nil invalid conn -5: expected a number above 0
        nil invalid burst "x": expected a number from 0 on
        nil shared dict not found
        nil shared dict not found"""),
    "numbers out of bounds": ("""
        show(conn.new("store", 100000, 1, 1))
        show(count.new("store", 1, 1e9))
        show(req.new("store", 1e10, 1))
        show(req.new("store", 1, 1e10))
        local lim = conn.new("store", 1, 1, 1)
        lim:set_conn(0)
        show(lim:incoming("foo", true))
        lim:set_conn(2)
        show(lim:incoming("foo", true))
        local rated = req.new("store", 1, 1)
        rated:set_rate("x")
        show(rated:incoming("foo", true))""", re.compile(r"""nil limit 1: invalid .*100001.*
nil limit 1: invalid period_us.*
nil limit 1: invalid count.*
nil limit 1: invalid .*burst.*
nil invalid conn 0 or burst 1: expected numbers, conn above 0
0 1
nil invalid rate "x": expected a number above 0""")),
    # The original lets these pass, uncounted.
    "keys that are none": ("""
        for _, lim in ipairs({req.new("store", 1, 0), count.new("store", 1, 1), conn.new("store", 1, 0, 1)}) do
            show(lim:incoming(nil, true))
            show(lim:incoming("", true))
            show(lim:incoming(string.rep("k", 65530), true))
        end""", "nil nil key\nnil empty key\nnil key too long\n" * 3),
    "less than one": ("""
        show(conn.new("store", 0.5, 0, 1):incoming("foo", true))
        show(count.new("store", 0.5, 10):incoming("foo", true))""", "nil rejected\nnil rejected"),
    "what resty.limit.* left in a dict before a reload is replaced": ("""
        dict:set("a", string.rep("x", 16)) dict:set("b", 3) dict:set("c", -2)
        show(req.new("store", 1, 0):incoming("a"))
        show(req.new("store", 1, 0):incoming("a", true))
        show(conn.new("store", 2, 0, 1):incoming("b", true))
        show(count.new("store", 2, 10):incoming("c"))
        show(count.new("store", 2, 10):incoming("c", true))
        show(count.new("store", 2, 10):incoming("c", true))
        dict:set("d", "text")
        show(count.new("store", 2, 10):incoming("d", true))
        show(conn.new("store", 2, 0, 1):incoming("d", true))""",
                                                                      "0 0\n0 0\n0 1\n0 1\n0 1\n0 0\n" + "nil shdict abused by other users\n" * 2),
    "one dict for several kinds": ("""
        show(req.new("store", 1, 0):incoming("k", true))
        show(conn.new("store", 1, 0, 1):incoming("k", true))
        show(count.new("store", 1, 10):incoming("k", true))""", "0 0\n0 1\n0 0"),
    "leaving what nobody holds": ("""
        local lim = conn.new("store", 1, 0, 1)
        show(lim:leaving("nobody"))
        show(pcall(lim.leaving, lim, nil))""", re.compile("nil not found\nfalse .*")),
    "numbers as keys": ("""
        local lim = conn.new("store", 1, 0, 1)
        show(lim:incoming(7, true))
        show(lim:incoming("7", true))
        show(lim:leaving("7"))
        show(lim:incoming("7", true))
        show(lim:leaving(7))""", "0 1\nnil rejected\n0\n0 1\n0"),
    "a flushed dict while requests are there": ("""
        local lim = conn.new("store", 1, 0, 1)
        lim:incoming("flushed", true)
        dict:flush_all()
        show(lim:incoming("flushed", true))
        show(lim:leaving("flushed"))
        show(lim:leaving("flushed"))
        show(lim:leaving("flushed"))""", "0 1\n0\n0\nnil not found"),
    "keys": ("""
        local lim = req.new("store", 1, 0)
        dict:flush_all()
        show(dict:get("secret"))
        lim:incoming("secret", true)
        local keys = dict:get_keys()
        show(#keys, keys[1])""", "nil\n1 secret"),
}


def test_own(check):
    with lua_nginx.Nginx(DICTS) as nginx:
        for name, (text, wanted) in OWN.items():
            got = run(nginx, "resty.weir.limit", text)
            if isinstance(wanted, str):
                wanted = "\n".join(line.strip() for line in wanted.strip().splitlines())
                check.equal(got, wanted, name)
            else:
                check(wanted.fullmatch(got), f"{name}: {got}")


def test_made_early(check):
    """Limiters that are made in init_by_lua, by the process that may not become the master: their zone is still this nginx's own."""
    http = """lua_shared_dict store 1m; init_by_lua_block { require "resty.core"
        early = {lim = assert(require("resty.weir.limit.count").new("store", 5, 1000))}
        early.none, early.why = early.lim:incoming("k", true) }"""
    ask = 'return (select(2, early.lim:incoming("k", true)))'
    with lua_nginx.Nginx(http) as nginx:
        check.contains(nginx.lua("return early.why"), "cannot be asked in init_by_lua", "asked too early")
        left = [nginx.lua(ask) for _ in range(2)]
        nginx.reload()
        left += [nginx.lua(ask) for _ in range(2)]
        check.equal(left, [4, 3, 2, 1], "one state, over a reload")
        mine = [name for name in lua_nginx.shm_zones() if f"-{nginx.process.pid}-" in name]
        check.equal(len(mine), 1, "the zone is that of this nginx")


TESTS = [test_documented, test_own, test_made_early]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
