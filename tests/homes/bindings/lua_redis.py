#!/usr/bin/env python3
"""resty.weir on real Redis servers over cosockets: module and scripts, servers that die, stop, refuse or forget, killed handlers."""
import os
import signal
import sys
import tempfile
import threading
import time

from lib import build, certificates, checks, lua_nginx, ports, redis_server

MODULE = f"--loadmodule {build.REDIS_MODULE}"
LIMIT = '"fixed-window 5/100d"'


def url(server, options="", user="", db=""):
    return f"redis://{user}127.0.0.1:{server.port}{db}?deadline=30s{options}"


def take(nginx, address, key, limit=LIMIT, more=""):
    """(decision, None, None), or (None, message, code)."""
    got = nginx.lua(f'local d, err, code = assert(weir.open("{address}")):take("{key}", {limit}{more}) return d or false, err or "", code or ""')
    return got if got[0] else [None, *got[1:]]


def test_verbs(check):
    """The same answers with the module and by the scripts, and on the same keys in turn."""
    for name, options in (("module", MODULE), ("scripts", "")):
        with redis_server.Server(options) as server, server.client() as client, lua_nginx.Nginx() as nginx:
            address = url(server)
            for i in range(7):
                decision, message, _ = take(nginx, address, "k")
                if not check(decision, f"{name}: {message}"):
                    return
                check.equal((decision["allowed"], decision["remaining"], decision["degraded"]), (i < 5, max(0, 4 - i), False),
                            f"{name}: take {i}")
            check.equal([client.call("EXISTS", "weir:k"), len(client.call("KEYS", "*"))], [1, 1], f"{name}: one key, with its prefix")
            check.equal(nginx.lua(f'local s = weir.open("{address}") local d = s:take("big", {LIMIT}, 4) local r = weir.receipt(d) '
                                  f'return s:settle("big", {LIMIT}, r, 1), {{s:settle("big", {LIMIT}, r, 1)}}, s:peek("big", {LIMIT}).remaining, '
                                  f's:reset("big"), s:peek("big", {LIMIT}).remaining'), [True, [True, "before"], 4, True, 5], f"{name}: settle, reset")
            both = f'{{{{key="{{t}}a", limit={LIMIT}, cost=2}}, {{key="{{t}}b", limit="concurrent 1", acquire=true}}}}'
            got = nginx.lua(f'local s = weir.open("{address}") local one, two = s:take_all({both}, {{detail=true}}), s:take_all({both}) '
                            f'return one, two, s:release("{{t}}b", "concurrent 1", one.lease)')
            check.equal((got[0]["allowed"], len(got[0]["rows"]), got[1]["allowed"], got[1]["binding"], got[2]), (True, 2, False, 1, True),
                        f"{name}: take_all with a lease")
            check.equal(nginx.lua(f'return weir.open("{address}"):peek("{{t}}a", {LIMIT}).remaining'), 3, f"{name}: all or nothing")
            check.equal(nginx.lua(f'local d = weir.open("{address}"):take("least", {LIMIT}, 9, {{least=1}}) return d.granted'), 5, f"{name}: least")
            check.equal(nginx.lua(f'return (select(2, weir.open("{address}"):peek_all({both})))'),
                        "a peek at Redis has one key: peek at each by itself", f"{name}: peek_all")
            check.equal(nginx.lua(f'return weir.open("{address}"):check(), weir.open("{address}"):counts()'),
                        [True, {"allowed": 8, "denied": 3, "delayed": 0, "failed": 0, "degraded": 0}], f"{name}: counts")


def connections(client):
    """How many the server has accepted so far."""
    return int(client.call("INFO", "stats").decode().split("total_connections_received:")[1].split()[0])


def test_connections(check):
    """They are used again; every one says who it is and which database is its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "password")
        with open(path, "w", encoding="ascii") as file:
            file.write("secret\n")
        config = f"requirepass secret\nunixsocket {folder}/socket\nuser limits on >word ~weir:* -@all +evalsha +eval +time +get +getrange +strlen +exists " \
                 "+set +setrange +pexpireat +del +select"
        with redis_server.Server(MODULE, config) as server, lua_nginx.Nginx() as nginx:
            with server.client() as client:
                client.call("AUTH", "secret")
                before = connections(client)
                for i in range(30):
                    decision, message, _ = take(nginx, url(server, "", ":secret@", "/3"), "k")
                    check(decision and not decision["degraded"], f"take {i}: {message}")
                check.equal(connections(client) - before, 1, "one connection for all of them")
                client.call("SELECT", 3)
                check.equal(client.call("DBSIZE"), 1, "in its own database")
                client.call("SELECT", 0)
                check.equal(client.call("DBSIZE"), 0, "and in no other")
            check(take(nginx, url(server, f"&password-file={path}"), "file")[0], "a password file")
            check(take(nginx, f"redis+unix://:secret@{folder}/socket?deadline=30s", "unix")[0], "a socket of this host")
            decision, message, _ = take(nginx, url(server, "", "limits:word@"), "acl")
            check(decision and not decision["degraded"], f"a user without the module's commands: {message}")
            for user, words in ((":wrong@", "the server does not let us in: WRONGPASS"), ("", "NOAUTH")):
                decision, message, code = take(nginx, url(server, "&fail=open", user), "k")
                if user:
                    check(decision is None and code == "ESYSTEM" and words in message, f"{words}: {decision} {message}")
                else:
                    check(decision["degraded"], f"{words}: {decision}")
            decision, message, code = take(nginx, url(server, "", ":secret@", "/99"), "k")
            check(decision is None and code == "ESYSTEM" and "DB index" in message, f"no such database: {message}")


def test_forgetful(check):
    """Servers that lose the scripts or the module in between."""
    with redis_server.Server("--enable-module-command yes") as server, server.client() as client, lua_nginx.Nginx() as nginx:
        left = []
        for act in ("SCRIPT FLUSH", f"MODULE LOAD {build.REDIS_MODULE}", "MODULE UNLOAD weir", "SCRIPT FLUSH", "SCRIPT FLUSH"):
            client.call(*act.split())
            decision, message, _ = take(nginx, url(server), "k")
            left.append(decision and (decision["remaining"], decision["degraded"]))
        check.equal(left, [(remaining, False) for remaining in (4, 3, 2, 1, 0)], "each was charged once")
        client.call("SCRIPT", "FLUSH")
        many = nginx.lua(f'local l = {{}} for i = 1, 40 do l[i] = {{key="many", limit="fixed-window 100/d"}} end local t = {{}} '
                         f'for i, d in ipairs(weir.open("{url(server)}"):take_many(l)) do t[i] = d.remaining or d.error end return t')
        check.equal(sorted(many), list(range(60, 100)), "many at once, without the script at first")


def test_refusals(check):
    with redis_server.Server() as server, server.client() as client, lua_nginx.Nginx() as nginx:
        client.call("SET", "weir:page", "not weir's")
        decision, message, code = take(nginx, url(server), "page")
        check((decision, code) == (None, "EFOREIGN") and "not weir's" in message, f"a value of others: {message}")
        client.call("CONFIG", "SET", "maxmemory", 1)
        check(take(nginx, url(server), "k")[0]["degraded"], "without memory the local fallback decides")
        check.contains(nginx.errors(), "does not decide (OOM", "and the log says so")
        take(nginx, url(server), "k")
        check.equal(nginx.errors().count("does not decide (OOM"), 1, "once in a while")
        check.equal(nginx.lua(f'return weir.open("{url(server)}"):reset("k")'), True, "but forgetting works")
        client.call("CONFIG", "SET", "maxmemory", 0)
        check(not take(nginx, url(server), "k")[0]["degraded"], "and the server decides again at once")
        for address, words in (
                ("redis+cluster://127.0.0.1:1", "redis+cluster:// is not supported here: expected one server"),
                ("redis+sentinel://127.0.0.1:1/m", "redis+sentinel:// is not supported here: expected one server"),
                ("redis://127.0.0.1?engine=function", "engine=function is not supported here: expected auto, module or lua"),
                ("rediss://127.0.0.1?ca=/x", "ca=, cert= and key= are not supported here"),
                ("redis://127.0.0.1?fail=maybe", "fail"), ("redis://127.0.0.1:99999", "port")):
            got = nginx.lua(f'local s, err, code = weir.open("{address}") return s or false, err, code')
            check(got[0] is False and words in got[1] and got[2] in ("EUNSUPPORTED", "EURL"), f"{address}: {got}")


def test_outage(check):
    """While a server is away the address decides who decides; each word, each verb."""
    wanted = {"local": [(True, 4), (True, 3)], "open": [(True, 5), (True, 5)], "closed": [(False, 0), (False, 0)]}
    with redis_server.Server(MODULE) as server, lua_nginx.Nginx() as nginx:
        nginx.allow("connect")
        addresses = {word: url(server, f"&fail={word}") for word in wanted}
        for word, address in addresses.items():
            check(not take(nginx, address, word)[0]["degraded"], f"{word}: the server decides")
        server.kill()
        for word, address in addresses.items():
            got = [take(nginx, address, word + "2")[0] for _ in range(2)]
            check.equal([(one["allowed"], one["remaining"]) for one in got], wanted[word], f"fail={word}")
            check(all(one["degraded"] and one["charged"] == 0 for one in got), f"fail={word} is told: {got}")
            if word == "closed":
                check.equal(got[0]["retry_after_us"], 1000000, "retry after a second")
        local = addresses["local"]
        got = nginx.lua(f'local s = weir.open("{local}") local r = {{}} for name, run in pairs({{'
                        f'settle=function() return s:settle("k", {LIMIT}, "w1-1-1", 0) end, reset=function() return s:reset("k") end, '
                        f'renew=function() return s:renew("k", "concurrent 1", "5") end}}) do local ok, _, code = run() r[name] = ok and "ok" or code end return r')
        check.equal(got, dict.fromkeys(("settle", "reset", "renew"), "EUNREACHABLE"), "the other verbs say so")
        got = nginx.lua(f'local s = weir.open("{local}") local d = s:acquire("l", "concurrent 1") '
                        f'return d.degraded, s:renew("l", "concurrent 1", d.lease), s:release("l", "concurrent 1", d.lease)')
        check.equal(got, [True, True, True], "leases of the local fallback are renewed and released there")
        many = nginx.lua(f'local t = {{}} for i, d in ipairs(weir.open("{local}"):take_many({{{{key="m", limit={LIMIT}}}, '
                         f'{{key="m", limit={LIMIT}}}}})) do t[i] = d.remaining end return t')
        check.equal(many, [4, 3], "many at once")
        server.start()
        check(nginx.wait_for(lambda: not take(nginx, local, "back")[0]["degraded"]), "the server is found again")
        log = nginx.errors()
        check(log.count("does not decide") >= 3 and "decides again; meanwhile" in log, "and the log has both")


def test_killed_in_the_middle(check):
    """A server that is killed and started under load: every request is answered, none hangs, none fails."""
    server_text = f"location = /t {{ content_by_lua_block {{ local d, err = weir.open('redis://127.0.0.1:{{port2}}?deadline=1s'):take('k', {LIMIT}) " \
                  "ngx.status = not d and 500 or d.degraded and 203 or d.allowed and 200 or 429 ngx.say(err or 'ok') } }"
    with redis_server.Server(MODULE) as server:
        with lua_nginx.Nginx("lua_socket_log_errors off;", server_text.replace("{port2}", str(server.port)), workers=2) as nginx:
            seen, stop = {}, threading.Event()

            def ask():
                with nginx.client() as client:
                    while not stop.is_set():
                        status = client.get("/t").status
                        seen[status] = seen.get(status, 0) + 1
            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            for _ in range(3):
                time.sleep(0.2)
                server.kill()
                check(nginx.wait_for(lambda: seen.get(203, 0) > 0), "the local fallback decides")
                server.start()
                before = seen.get(429, 0) + seen.get(200, 0)
                check(nginx.wait_for(lambda: seen.get(429, 0) + seen.get(200, 0) > before), "the server decides again")
            check(nginx.wait_for(lambda: seen.get(429, 0) > 0), "as often as the limit says")
            stop.set()
            for thread in threads:
                thread.join(60)
            check(500 not in seen and seen.get(203, 0) > 0 and seen.get(429, 0) > 0, f"answers: {seen}")


def test_slow(check):
    """A server that is stopped: a call ends by its deadline, and after three of them no call waits."""
    with redis_server.Server(MODULE) as server, lua_nginx.Nginx("lua_socket_log_errors off;") as nginx:
        address = f"redis://127.0.0.1:{server.port}?deadline=300ms"
        while take(nginx, address, "k")[0]["degraded"]:
            pass
        server.signal(signal.SIGSTOP)
        # One after the other in one handler, so that a busy machine does not make the first rests, of a few ms, look like none.
        got = nginx.lua(f"""
            local s, degraded, quick, times = weir.open("{address}"), true, 0, {{}}
            while quick < 3 and #times < 60 do
                ngx.update_time()
                local start = ngx.now()
                local decision = s:take("slow", {LIMIT})
                ngx.update_time()
                degraded, times[#times + 1] = degraded and decision.degraded, ngx.now() - start
                if times[#times] < 0.15 then quick = quick + 1 end
            end
            return degraded, quick, times""")
        check(got[0], "the local fallback decides")
        check.equal(got[1], 3, f"some do not wait: {got[2]}")
        check(all(took >= 0.15 for took in got[2][:3]), f"the first three wait: {got[2]}")
        server.signal(signal.SIGCONT)
        check(nginx.wait_for(lambda: not take(nginx, address, "k2", '"fixed-window 100000/d"')[0]["degraded"]), "it decides again")


def test_killed_handlers(check):
    """A handler that is killed in the middle of a call takes its connection with it: nobody else gets its answer."""
    with redis_server.Server(MODULE) as server, lua_nginx.Nginx("lua_socket_log_errors off;") as nginx:
        address = url(server)
        take(nginx, address, "first", '"fixed-window 1000/d"')
        killer = f"""
            local s = weir.open("{address}")
            local answers = {{}}
            for i = 1, 50 do
                -- The thread sends its question and waits for the answer; it is killed before that is read.
                local thread = ngx.thread.spawn(function() s:take("killed", "fixed-window 7777/d", 7) end)
                ngx.thread.kill(thread)
                answers[i] = s:take("mine", "fixed-window 1000/d").limit
            end
            return answers"""
        check.equal(set(nginx.lua(killer)), {1000}, "every answer is one's own")
        spent = nginx.lua(f'local d = weir.open("{address}"):peek("killed", "fixed-window 7777/d") return d.limit - d.remaining')
        check(spent >= 7 and spent % 7 == 0, f"questions had been sent: {spent}")
        # and where the client goes away
        with lua_nginx.Nginx("lua_socket_log_errors off;", f"lua_check_client_abort on; location = /gone {{ content_by_lua_block {{ ngx.sleep(0.01) "
                             f"for i = 1, 200 do weir.open('{address}'):take('gone', 'fixed-window 7777/d', 7) end ngx.say('done') }} }}") as other:
            for _ in range(20):
                client = other.client()
                client.socket.sendall(b"GET /gone HTTP/1.1\r\nHost: x\r\n\r\n")
                time.sleep(0.015)
                client.close()
            check.equal(other.lua(f'return weir.open("{address}"):take("mine", "fixed-window 1000/d").limit'), 1000, "nor here")


def test_tls(check):
    """rediss://, by what nginx trusts."""
    with certificates.Certificates() as made:
        port = ports.take()
        options = f"--tls-port {port} --tls-cert-file {made.path('server.crt')} --tls-key-file {made.path('server.key')} " \
                  f"--tls-ca-cert-file {made.path('ca.crt')} --tls-auth-clients no"
        with redis_server.Server(options), lua_nginx.Nginx(f"lua_ssl_trusted_certificate {made.path('ca.crt')}; lua_ssl_verify_depth 2;") as trusting, \
                lua_nginx.Nginx("lua_socket_log_errors off;") as other:
            # lua-nginx-module compares names only, so a certificate for an address does not count.
            check(take(trusting, f"rediss://127.0.0.1:{port}?deadline=30s", "k")[0]["degraded"], "an address instead of a name")
            check.contains(trusting.errors(), "certificate does not match host", "but its authority is trusted")
            left = [take(trusting, f"rediss://127.0.0.1:{port}?deadline=30s&verify=no", "k")[0] for _ in range(2)]
            check.equal([(one["remaining"], one["degraded"]) for one in left], [(4, False), (3, False)], "over TLS")
            check(take(other, f"rediss://127.0.0.1:{port}?deadline=30s", "k")[0]["degraded"], "one that nobody trusts: not used")
            check(not take(other, f"rediss://127.0.0.1:{port}?deadline=30s&verify=no", "k")[0]["degraded"], "verify=no")
        ports.give_back(port)


PHASES = """
    location = /phases {
        set_by_lua_block $unused { local _, err = weir.open("ADDRESS"):take("k", LIMIT) ngx.ctx.set = err return "" }
        content_by_lua_block { ngx.say(ngx.ctx.set) }
        header_filter_by_lua_block { local _, err, code = weir.open("ADDRESS"):take("k", LIMIT) ngx.header["x-phase"] = code .. " " .. err }
        log_by_lua_block { local s = weir.open("ADDRESS") ngx.log(ngx.ERR, "log said: ", select(2, s:take("k", LIMIT)))
                           ngx.log(ngx.ERR, "wait said: ", select(2, weir.open("memory:1m"):wait("k", LIMIT, 1, 1)))
                           ngx.log(ngx.ERR, "zone said: ", weir.open("memory:1m"):take("k", LIMIT).remaining) }
    }
    location = /timer { content_by_lua_block { ngx.timer.at(0, function() ngx.log(ngx.ERR, "timer said: ", weir.open("ADDRESS"):take("k", LIMIT).remaining) end)
                                               ngx.say("ok") } }
"""


def test_phases(check):
    """Where nginx has no cosockets, that is said; a zone works there."""
    with redis_server.Server() as server:
        text = PHASES.replace("ADDRESS", url(server)).replace("LIMIT", LIMIT)
        http = f"init_by_lua_block {{ require 'resty.core' weir = require 'resty.weir' early = {{weir.open('{url(server)}'):take('k', {LIMIT})}} }}"
        with lua_nginx.Nginx(http, text) as nginx:
            words = "a redis:// store cannot be used in the phase {} of nginx, which can neither sleep nor use sockets"
            answer = nginx.get("/phases")
            check.contains(answer.text, words.format("set"), "set_by_lua")
            check.contains(answer.fields["x-phase"], "EUNSUPPORTED " + words.format("header_filter"), "header_filter_by_lua")
            check.contains(nginx.lua("return early[2]"), words.format("init"), "init_by_lua")
            check(nginx.wait_for(lambda: "zone said: 4" in nginx.errors()), "a zone works in log_by_lua")
            check.contains(nginx.errors(), "log said: " + words.format("log"), "log_by_lua")
            check.contains(nginx.errors(), "wait said: wait cannot be used in the phase log", "a wait in log_by_lua")
            nginx.get("/timer")
            check(nginx.wait_for(lambda: "timer said: 4" in nginx.errors()), "a timer can ask Redis")


TESTS = [test_verbs, test_connections, test_forgetful, test_refusals, test_outage, test_killed_in_the_middle, test_slow,
         test_killed_handlers, test_tls, test_phases]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
