#!/usr/bin/env python3
"""resty.weir as programs use it: arguments of every kind, reused tables, waits, fields, what is missing, memory that stays flat.

    lua_store.py --long     ten million takes instead of one
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from lib import build, checks, lua_nginx, sanitizers

LONG = "--long" in sys.argv[1:]

# (what is called, what it says)
MISTAKES = [
    ('weir.open()', "invalid address nil: expected text like \"shm:/limits?size=16m\""),
    ('weir.open(5)', "invalid address 5"), ('weir.open("memory:1m\\0x")', "it has a NUL byte"),
    ('weir.open("memory:nonsense")', "size"), ('weir.open("disk:/x")', "address"), ('weir.open("")', "address"),
    ('weir.open("shm:/a/b")', "one slash at its start"), ('weir.open("file:/nowhere/at/all?size=1m")', "/nowhere"),
    ('s:take()', "invalid limit nil: expected text like \"token-bucket 10/s burst 20\""),
    ('s:take(nil, L)', "invalid key nil: expected a string of 1 to 65536 bytes"),
    ('s:take(42, L)', "invalid key 42"), ('s:take(true, L)', "invalid key (a boolean)"), ('s:take({}, L)', "invalid key (a table)"),
    ('s:take("", L)', "invalid key of 0 bytes: expected 1 to 65536"),
    ('s:take(string.rep("k", 65537), L)', "invalid key of 65537 bytes"),
    ('s:take("k", "token-bucket 10")', "column 14: expected a rate like 10/s"),
    ('s:take("k", "")', "column 1"), ('s:take("k", "fixed-window 1/s\\0")', "column"), ('s:take("k", 5)', "invalid limit 5"),
    ('s:take("k", {})', "invalid limit (a table)"), ('s:take("k", require("ffi").new("int[1]"))', "invalid limit (a cdata)"),
    ('s:take("k", require("ffi").cast("weir_limit *", nil))', "invalid limit"),
    ('s:take("k", L, -1)', "invalid cost -1: expected a whole number from 0 to 1000000000000"),
    ('s:take("k", L, 0/0)', "invalid cost nan"), ('s:take("k", L, 1/0)', "invalid cost inf"), ('s:take("k", L, -1/0)', "invalid cost -inf"),
    ('s:take("k", L, 1.5)', "invalid cost 1.5"), ('s:take("k", L, 2^53+1)', "invalid cost 9007199254740992"),
    ('s:take("k", L, 1e12+1)', "invalid cost 1000000000001"), ('s:take("k", L, "3")', 'invalid cost "3"'), ('s:take("k", L, {})', "invalid cost (a table)"),
    ('s:take("k", L, 1LL)', "invalid cost (a cdata)"), ('s:take("k", L, false)', "invalid cost (a boolean)"),
    ('s:take("k", L, 1, 5)', "invalid options 5: expected a table"), ('s:take("k", L, 1, {wiat=1})', 'unknown option "wiat": there are detail, into, least, wait'),
    ('s:take("k", L, 1, {wait=-1})', "invalid wait -1: expected 0 to 31622400 seconds, or \"any\""),
    ('s:take("k", L, 1, {wait="x"})', 'invalid wait "x"'), ('s:take("k", L, 1, {wait=0/0})', "invalid wait nan"),
    ('s:take("k", L, 1, {wait=1e9})', "invalid wait 1000000000"), ('s:take("k", L, 3, {least=4})', "invalid least 4: expected a whole number from 1 to 3"),
    ('s:take("k", L, 3, {least=0})', "invalid least 0"), ('s:take("k", L, 1, {into=5})', "invalid into 5: expected a table"),
    ('s:take("k", L, 3, {least=1, wait=1})', "least"), ('s:peek("k", L, -1)', "invalid cost -1"), ('s:peek(nil, L)', "invalid key nil"),
    ('s:acquire("k", L)', "concurrent"), ('s:acquire("k", "concurrent 2", 0, 7)', "invalid options 7"),
    ('s:renew("k", "concurrent 2")', "invalid lease nil: expected the lease of a decision"), ('s:renew("k", "concurrent 2", "abc")', 'invalid lease "abc"'),
    ('s:renew("k", "concurrent 2", 0)', "invalid lease 0"), ('s:renew("k", "concurrent 2", 2^53)', "invalid lease"), ('s:renew("k", "concurrent 2", 1.5)', "invalid lease 1.5"),
    ('s:renew("k", "concurrent 2", "99999999999999999")', "invalid lease"), ('s:release("k", "concurrent 2", "5")', "no such lease"), ('s:release("k", L, "5")', "concurrent"),
    ('s:settle("k", L)', "invalid cost nil: expected the real cost"), ('s:settle("k", L, 5, 1)', "invalid receipt 5"), ('s:settle("k", L, "w9", 1)', 'invalid receipt "w9"'),
    ('s:settle("k", L, "w1-1-1", -1)', "invalid cost -1"), ('s:settle("k", "concurrent 2", "w1-1-1", 0)', "cannot be settled"), ('s:reset()', "invalid key nil"), ('s:reset("")', "invalid key of 0 bytes"),
    ('s:take_all()', "invalid requests nil: expected a list of 1 to 16 of them"), ('s:take_all({})', "invalid requests"), ('s:take_all({5})', "request 1: invalid options 5"),
    ('s:take_all({{key="k", limit=L}, {key="k"}})', "request 2: invalid limit nil"), ('s:take_all({{key="k", limit=L}, {key="", limit=L}})', "request 2: invalid key of 0 bytes"),
    ('s:take_all({{key="k", limit=L, kost=1}})', 'request 1: unknown option "kost"'), ('s:take_all({{key="k", limit=L}}, {least=1})', 'unknown option "least"'),
    ('s:take_all({{key="k", limit=L}}, {wait="never"})', 'invalid wait "never"'), ('s:take_all({{key="k", limit=L}, {key="k", limit=L}})', "share"),
    ('s:take_many({{key="k", limit=L}, {key="k", limit="x"}})', "request 2: column 1"), ('s:take_many({})', "invalid requests"), ('s:take_many("x")', 'invalid requests "x"'),
    ('s:wait("k", L)', "invalid wait nil"), ('s:wait("k", L, 1, -5)', "invalid wait -5"), ('s:wait("k", L, -1, 1)', "invalid cost -1"), ('s:wait("k", "x", 1, 1)', "column 1"),
    ('s:wait("k", L, 1, 1, {least=1})', 'unknown option "least"'), ('s:wait("k", L, 1, 1, {acquire=true})', "concurrent"),
    ('weir.receipt(5)', "invalid decision 5: expected what take() returned"), ('weir.receipt({})', "invalid decision (a table)"), ('weir.fields(nil, L)', "invalid decision nil"),
    ('weir.fields(s:peek("k", L), "a limit")', "column 1"), ('weir.fields(s:peek("k", L), L, "loud")', "loud"), ('weir.fields(s:peek("k", L), L, 5)', "invalid style 5"),
    ('weir.fields(s:peek("k", L), {})', "invalid requests"), ('weir.fields(s:peek("k", L .. ", fixed-window 1/d"), L .. ", fixed-window 1/d")', "take it with detail = true"),
    ('weir.limit(nil)', "invalid limit nil"), ('weir.limit_text("x")', "column 1"),
]


def test_mistakes(check):
    """Each gives nil, a message and the name of a code, and charges nothing."""
    with lua_nginx.Nginx() as nginx:
        for call, words in MISTAKES:
            got = nginx.lua(f'local s, L = assert(weir.open("memory:1m")), "token-bucket 5/100d" local a, err, code = {call} return a or false, err or "", code or ""')
            check(got[0] is False and words in got[1] and re.fullmatch("E[A-Z]+", got[2]), f"{call}: {got}")
        check.equal(nginx.lua('return weir.open("memory:1m"):peek("k", "token-bucket 5/100d").remaining'), 5, "nothing was charged")
        # What is right at the very edge.
        for call, wanted in (('s:take(string.rep("k", 65536), L).remaining', 4), ('s:take("a\\0b", L).remaining', 4), ('s:take("a\\0c", L).remaining', 4),
                             ('s:take("\\0", L).remaining', 4), ('s:take("\\255\\254", L).remaining', 4), ('s:take("z", L, 0).remaining', 5),
                             ('s:take("z", L, 1e12).retry_after_us', -1), ('s:take("w", "fixed-window 1000000000000/d", 1e12).remaining', 0),
                             ('s:take("w", L, 1, {wait="any"}).allowed', True), ('s:take("y", L, 9, {least=2}).granted', 5),
                             ('weir.limit_text("GCRA 10r/s burst 20")', "token-bucket 10/s burst 20")):
            check.equal(nginx.lua(f'local s, L = assert(weir.open("memory:1m")), "token-bucket 5/100d" return {call}'), wanted, call)
        check.equal(nginx.lua('for i = 1, 70 do local s, err = weir.open("memory:" .. 65536 + i * 4096) if not s then return i > 60, err end end'),
                    [True, "too many stores: this worker has 64 open already; use the same addresses again"], "stores have a bound")


def test_tables(check):
    """A table that is used again keeps nothing of its last decision; others' fields stay."""
    with lua_nginx.Nginx() as nginx:
        got = nginx.lua("""
            local s, t = weir.open("memory:1m"), {mine = "stays"}
            local first = s:acquire("c", "concurrent 1", 1, {into = t, detail = true})
            local same, lease, receipt = first == t, t.lease, weir.receipt(t)
            local second = s:take("k", "fixed-window 3/d", 2, {into = t})
            return same, lease ~= nil, second.lease == nil and second.rows == nil and second.receipt == nil, second.remaining, t.mine,
                   weir.receipt(t) ~= receipt, weir.receipt(t) == weir.receipt(t)""")
        check.equal(got, [True, True, True, 1, "stays", True, True], "into")
        got = nginx.lua("""
            local s = weir.open("memory:1m")
            local list = {}
            for i = 1, 300 do list[i] = {key = "k" .. i % 3, limit = "fixed-window 90/d"} end
            list[301] = {key = "l", limit = "concurrent 1", acquire = true}
            list[302] = {key = "l", limit = "fixed-window 90/d", acquire = true}
            local t, n = s:take_many(list), 0
            for i = 1, 300 do if t[i].allowed then n = n + 1 end end
            return n, t[301].lease ~= nil, t[302].allowed, t[302].code, t[302].error""")
        check.equal(got, [270, True, False, "EUNSUPPORTED", "this limit does not do that"], "take_many")
        got = nginx.lua("""
            local s, l = weir.open("memory:1m"), {{key = "u", limit = "fixed-window 2/d, fixed-window 9/h"}, {key = "t", limit = "concurrent 1", acquire = true}}
            local one, two = s:take_all(l, {detail = true}), s:take_all(l, {detail = true})
            return one.allowed, #one.rows, one.rows[3].lease == one.lease, two.allowed, two.binding, s:peek("u", "fixed-window 2/d").remaining,
                   s:peek_all({l[1]}).allowed, weir.fields(two, l)["ratelimit-policy"]""")
        check.equal(got[:7], [True, 3, True, False, 2, 1, True], "take_all")
        check.equal(got[7].count("q="), 3, f"fields of take_all: {got[7]}")
        got = nginx.lua("""
            local s, L = weir.open("memory:1m"), "fixed-window 90/d"
            local uneven = s:take_all({{key = "a", limit = L, cost = 5}, {key = "b", limit = L, cost = 2}}, {detail = true})
            local none, why, code = weir.receipt(uneven)
            local settled = s:settle("b", L, weir.receipt(uneven.rows[2]), 0)
            local even = s:take_all({{key = "a", limit = L, cost = 4}, {key = "b", limit = L, cost = 4}}, {detail = true})
            local once, again = s:settle("b", L, weir.receipt(even.rows[2]), 1)
            local twice, before = s:settle("b", L, weir.receipt(even), 1)
            return none == nil, why, code, settled, again == nil, before, s:peek("a", L).remaining, s:peek("b", L).remaining""")
        check.equal([*got[:1], *got[2:]], [True, "ERECEIPT", True, True, "before", 81, 89], "one charge has one receipt")
        check.contains(got[1], "the receipt of its row", "no common receipt")


FIELDS = """location = /f { content_by_lua_block {
    local store, limit = assert(weir.open("memory:1m")), "fixed-window 1/100d from-first"
    local decision = store:take(ngx.var.arg_k, limit)
    assert(weir.set_fields(decision, limit, ngx.var.arg_style))
    ngx.status = decision.allowed and 200 or 429
    ngx.say(weir.retry_after(decision) or "none") } }"""


def test_fields(check):
    """As the server writes them."""
    with lua_nginx.Nginx("", FIELDS) as nginx:
        first, second = nginx.get("/f?k=a"), nginx.get("/f?k=a")
        check.equal((first.status, first.fields.get("ratelimit"), "retry-after" in first.fields, first.text.strip()),
                    (200, '"fixed-window";r=0;t=8640000', False, "none"), "allowed")
        check.equal((second.status, second.fields.get("retry-after"), second.text.strip()), (429, second.text.strip(), second.text.strip()), "denied")
        check.within(int(second.fields["retry-after"]), 8639000, 8640000, "seconds, rounded up")
        check.equal(second.fields["ratelimit-policy"], '"fixed-window";q=1;w=8640000', "the policy")
        check(nginx.get("/f?k=b&style=x-ratelimit").fields.get("x-ratelimit-remaining") == "0", "another style")
        less = nginx.get("/f?k=a&style=retry-after").fields
        check("retry-after" in less and "ratelimit" not in less, f"only Retry-After: {less}")


def test_addresses(check):
    """Keys of addresses are those of Python and Node. nginx says who the client is, also behind proxies."""
    real = "set_real_ip_from 127.0.0.1; set_real_ip_from unix:; real_ip_header X-Forwarded-For;"
    with lua_nginx.Nginx(server=f"location = /who {{ {real} content_by_lua_block {{ ngx.say(weir.address_key()) }} }}") as nginx:
        for field, wanted in ((None, "127.0.0.1"), ("192.0.2.7", "192.0.2.7"), ("198.51.100.1, 192.0.2.7", "192.0.2.7"), ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
                              ("2001:db8::5", "2001:db8::/64"), ("2001:db8:0:1::5", "2001:db8:0:1::/64"), ("::1", "::/64"), ("::ffff:192.0.2.7", "192.0.2.7"),
                              ("0:0:0:a0::1", "0:0:0:a0::/64"), ("unknown", "127.0.0.1")):
            got = nginx.get("/who", {"X-Forwarded-For": field} if field else None).text
            check.equal(got, wanted + "\n", f"X-Forwarded-For: {field}")
        for wrong in ('"unix:"', '""', "5", "false"):
            check.contains(str(nginx.lua(f"return weir.address_key({wrong})")), "the client's address is not known, as behind a Unix socket", wrong)


def test_waits(check):
    """They sleep without holding up the worker, and never longer than they may."""
    with lua_nginx.Nginx() as nginx:
        start = time.monotonic()
        got = nginx.lua("""
            local s, t, done = weir.open("memory:1m"), {}, {}
            for i = 1, 10 do
                t[i] = ngx.thread.spawn(function()
                    local d = s:wait("k", "token-bucket 20/s burst 1", 1, 10)
                    done[#done + 1] = d.allowed
                end)
            end
            for i = 1, 10 do ngx.thread.wait(t[i]) end
            local n = 0
            for _, ok in ipairs(done) do if ok then n = n + 1 end end
            return n""")
        took = time.monotonic() - start
        check.equal(got, 10, "ten at once, one worker")
        check(took >= 0.44, f"in their turn: {took}")
        for call, wanted in (('s:wait("a", "fixed-window 1/100d", 2, 5)', (False, -1)), ('s:wait("b", "token-bucket 1/h", 1, 5)', (True, 0))):
            got = nginx.lua(f'local s = weir.open("memory:1m") local d = {call} return d.allowed, d.retry_after_us')
            check.equal(tuple(got), wanted, call)
        start = time.monotonic()
        for call in ('s:wait("b", "token-bucket 1/h", 1, 60)', 's:wait("d", "leaky-bucket 1/h burst 1", 2, 60)  d = s:wait("d", "leaky-bucket 1/h burst 1", 1, 60)',
                     's:take("e", "fixed-window 1/100d") d = s:wait("e", "fixed-window 1/100d", 1, 60)'):
            got = nginx.lua(f'local s = weir.open("memory:1m") local d = {call} return d.allowed, d.rows == nil')
            check.equal(got, [False, True], f"hopeless: {call}")
        check(time.monotonic() - start < 50, "what is hopeless is told at once")
        got = nginx.lua("""
            local s = weir.open("memory:1m")
            local held = s:acquire("slot", "concurrent 1")
            local thread = ngx.thread.spawn(function() return s:wait("slot", "concurrent 1", 1, 30, {acquire = true}) end)
            ngx.sleep(0.05)
            s:release("slot", "concurrent 1", held.lease)
            local _, d = ngx.thread.wait(thread)
            return d.allowed, d.lease ~= nil, s:wait("slot", "concurrent 1", 1, 0.1, {acquire = true}).allowed""")
        check.equal(got, [True, True, False], "a slot that is released")
        got = nginx.lua("""local s = weir.open("memory:1m") s:take("w", "fixed-window 1/100ms from-first")
            local start = ngx.now() local d = s:wait("w", "fixed-window 1/100ms from-first", 1, "any") return d.allowed, ngx.now() - start >= 0.09""")
        check.equal(got, [True, True], "as long as it takes")


def started(folder):
    """(whether it started, what it said) of an nginx that looks for the library in a folder."""
    try:
        with lua_nginx.Nginx(cpath=folder) as nginx:
            return True, nginx.said()
    except lua_nginx.nginx_server.WrongEnd as error:
        return False, str(error)


def test_library(check):
    """What is missing or does not fit is said, in words that help."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        up, said = started(folder)
        missing = "resty.weir finds no libweir.so.0" in said and "name the folder of the library in lua_package_cpath" in said
        installed = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, text=True, check=False, env={"PATH": "/usr/sbin:/sbin:/usr/bin"}).stdout
        check("libweir.so.0" in installed or (missing and not up), f"no library: {said[:600]}")
        (path / "libweir.so.0").write_text("not a library")
        up, said = started(folder)
        check(not up and "resty.weir cannot load" in said and "libweir.so.0" in said, f"another file: {said[:600]}")
        (path / "old.c").write_text('const char *weir_version(void) { return "0.0.9"; }\n')
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path / "libweir.so.0"), str(path / "old.c")], check=True)
        up, said = started(folder)
        check(not up and re.search(r"resty.weir needs libweir \d+\.\d+\.\d+ or newer", said) and "an older version" in said, f"an old library: {said[:600]}")
        (path / "new.c").write_text('const char *weir_version(void) { return "1.2.3"; }\nint weir_version_number(void) { return 10203; }\n')
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path / "libweir.so.0"), str(path / "new.c")], check=True)
        up, said = started(folder)
        check(not up and " or newer, and" in said and "is 1.2.3" in said, f"a new library: {said[:600]}")
        (path / "odd.c").write_text('#include <stddef.h>\nconst char *weir_version(void) { return "another"; }\nint weir_version_number(void) { return 100; }\n'
                                    'size_t weir_sizeof(const char *s) { (void)s; return 7; }\n')
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path / "libweir.so.0"), str(path / "odd.c")], check=True)
        up, said = started(folder)
        check(not up and "its weir_error has 7 bytes" in said, f"another layout: {said[:600]}")
    lua = shutil.which("lua5.1") or shutil.which("lua") or shutil.which("lua5.3") or shutil.which("lua5.4")
    if lua:  # a Lua that is not LuaJIT; nginx always has one
        done = subprocess.run([lua, "-e", f'package.path = "{lua_nginx.LUA}/?.lua;" .. package.path print(pcall(require, "resty.weir"))'],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        check("resty.weir needs LuaJIT: this is Lua 5" in done.stdout, f"{lua}: {done.stdout}")


def test_replaced_zone(check):
    """A zone that somebody replaces is opened again."""
    with tempfile.TemporaryDirectory() as folder, lua_nginx.Nginx() as nginx:
        address = f"file:{folder}/zone?size=1m"
        limit = "fixed-window 1000000/100d"
        ask = f'return weir.open("{address}"):take("k", "{limit}").remaining'
        check.equal([nginx.lua(ask) for _ in range(2)], [999999, 999998], "a zone in a file")
        before = time.time_ns() // 1000
        os.unlink(f"{folder}/zone")
        subprocess.run([build.WEIR, "take", "k", limit, "--cost", "500000", "--store", address], check=True, stdout=subprocess.DEVNULL)
        check.equal(nginx.lua(f'return weir.open("{address}"):check()'), True, "the check opens the new one at once")
        check(nginx.wait_for(lambda: nginx.lua(ask) < 500000), "the new one is used; zones look at their file once per second")
        settle = f's:settle("k", "{limit}", R, 0) return s:peek("k", "{limit}", 0).remaining'
        left = nginx.lua(f'return weir.open("{address}"):peek("k", "{limit}", 0).remaining')
        check.equal(nginx.lua(f'local s, R = weir.open("{address}"), "w1-{before}-100" {settle}'), left, "what the old one charged is lost, and gives nothing back")
        check.equal(nginx.lua(f'local s = weir.open("{address}") local R = weir.receipt(s:take("k", "{limit}", 100)) {settle}'), left, "a charge of the new one is given back")
        check.equal(nginx.lua(f'return weir.open("{address}"):check(), weir.open("{address}"):info().keys'), [True, 1], "check and info")


MEMORY = """
    local s, ffi = assert(weir.open("memory:8m")), require "ffi"
    local into, limit, text = {}, weir.limit("token-bucket 10/s burst 20"), "fixed-window 100/m"
    local function resident()
        collectgarbage() collectgarbage()
        for line in io.lines("/proc/self/status") do
            local kb = line:match("^VmRSS:%s+(%d+)")
            if kb then return tonumber(kb), collectgarbage("count") end
        end
    end
    local options = {into = into}
    local function round(n)
        for i = 1, n do
            s:take("user:" .. i % 1000, limit)
            s:take("user:" .. i % 1000, text, 1, options)
            if i % 10 == 0 then s:take("k", "fixed-window " .. i % 5000 + 1 .. "/d") s:take(nil, limit) s:take("k", "nonsense " .. i) end
            if i % 100 == 0 then
                local d = s:acquire("c", "concurrent 5")
                if d.lease then s:release("c", "concurrent 5", d.lease) end
                weir.fields(d, "concurrent 5") weir.receipt(d)
            end
        end
    end
    round(ROUNDS / 5)
    local rss, lua = resident()
    round(ROUNDS)
    local rss2, lua2 = resident()
    return rss, rss2, lua, lua2
"""


def test_memory(check):
    """A million takes and mistakes: neither Lua's memory nor the process grows."""
    rounds = 5000000 if LONG else 500000
    if sanitizers.is_sanitized(build.BUILD / "libweir.so.0"):
        rounds //= 50
    with lua_nginx.Nginx() as nginx:
        rss, rss2, lua, lua2 = nginx.lua(MEMORY.replace("ROUNDS", str(rounds)))
        print(f"{rounds * 2} takes: {rss} to {rss2} KB in all, {lua:.0f} to {lua2:.0f} KB of Lua")
        check.at_most(rss2 - rss, 3000, "KB that the process has grown by")
        check.at_most(lua2 - lua, 1000, "KB that Lua has grown by")


def test_collected(check):
    """Stores, limits and calls that are collected while others are in use, and a worker that ends in the middle."""
    with tempfile.TemporaryDirectory() as folder, lua_nginx.Nginx() as nginx:
        got = nginx.lua(f"""
            local zone, n = require "resty.weir.zone", 0
            for i = 1, 200 do
                local s = assert(zone.open("file:{folder}/zone?size=1m"))   -- not the cached one: nobody keeps it
                local limit = weir.limit("fixed-window " .. i .. "/100d")
                s:take("k", limit)
                s, limit = nil, nil
                if i % 10 == 0 then collectgarbage() end
                if zone.open("file:{folder}/zone?size=1m"):take("k", "fixed-window 1000/100d").allowed then n = n + 1 end
            end
            collectgarbage() collectgarbage()
            return n, weir.open("file:{folder}/zone?size=1m"):check()""")
        check.equal(got, [200, True], "two hundred stores of one zone")
        nginx.reload()
        check.equal(nginx.lua(f'return weir.open("file:{folder}/zone?size=1m"):peek("k", "fixed-window 1000/100d").remaining'), 1000 - 201, "after a reload")


LISTS = """
    local s, list, mark = weir.open("memory:16m"), {}, {}
    local function member(request, name)
        if name == "key" then mark[#mark + 1] = true return "made" .. #mark .. string.rep("x", 3000) end
        if name == "least" then collectgarbage() collectgarbage() end
    end
    for i = 1, 5000 do list[i] = {key = "k" .. i, limit = "fixed-window " .. i .. "/100d"} end
    list[5000].key = nil
    setmetatable(list[5000], {__index = member})
    local good = 0
    for i, decision in ipairs(s:take_many(list)) do
        if decision.allowed and decision.limit == i then good = good + 1 end
    end
    local few = {}
    for i = 1, 16 do few[i] = setmetatable({limit = "fixed-window 1/100d"}, {__index = member}) end
    local first = #mark
    local allowed = s:take_all(few).allowed
    local spent = 0
    for i = first + 1, #mark do
        if not s:peek("made" .. i .. string.rep("x", 3000), "fixed-window 1/100d").allowed then spent = spent + 1 end
    end
    return good, allowed, spent
"""


def test_collected_lists(check):
    """A list with more limits than are remembered, and keys that nobody else has: none is collected before C has read it."""
    with lua_nginx.Nginx() as nginx:
        check.equal(nginx.lua(LISTS), [5000, True, 16], "every request with its own limit and key")


TESTS = [test_mistakes, test_tables, test_fields, test_addresses, test_waits, test_library, test_replaced_zone, test_memory, test_collected,
         test_collected_lists]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, [word for word in sys.argv[1:] if word != "--long"]))
