#!/usr/bin/env python3
"""Denied requests in the Python middlewares: on_denied, bodies of one's own, the handlers of weir.Denied; and addresses that are none, or that a
server took from X-Forwarded-For."""
import asyncio
import json
import logging
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from lib import bindings, checks, ports  # noqa: E402

bindings.in_python(__file__)
import fastapi  # noqa: E402
import fastapi.responses  # noqa: E402
import flask  # noqa: E402
import weir  # noqa: E402
import weir.asgi  # noqa: E402
import weir.web  # noqa: E402
import weir.wsgi  # noqa: E402
from lib.python_clients import Asgi, Wsgi, both, store_at  # noqa: E402

ONCE = "fixed-window 1/h from-first"
LOGGED = []


class Log(logging.Handler):
    """What the package tells the program's log."""

    def emit(self, record):
        LOGGED.append(record.getMessage())


logging.getLogger("weir").addHandler(Log())


def raised(call, kind):
    try:
        call()
    except kind as error:
        return str(error)
    return ""


# ---- on_denied ----

@both
def test_told(check, client):
    """Each denial is told with its request and decision. Who returns nothing gets the usual answer."""
    told = []
    web = client(store_at(), ONCE, exempt=["/health"], on_denied=lambda request, decision: told.append((request.ip, request.path, decision.remaining)))
    statuses = [web.ask(path)[0] for path in ("/a", "/b", "/health", "/c")]
    check.equal((statuses, told), ([200, 429, 200, 429], [("192.0.2.7", "/b", 0), ("192.0.2.7", "/c", 0)]), f"{web.kind}: who is denied")
    _, fields, body = web.ask()
    check.equal((fields["content-type"], json.loads(body)["reason"]), ("application/problem+json", "limit"), f"{web.kind}: the usual answer")


@both
def test_full_and_closed(check, client):
    """A store without room, and one that fails: told like every denial, with the fields and the body of weir serve."""
    told = []
    store = weir.Store("memory:64k?full=deny")
    store.set_time(1_700_000_000_000_000)
    web = client(store, [weir.web.Rule("fixed-window 5/1h from-first", name="hourly")],
                 on_denied=lambda r, decision: told.append((r.rule.name, r.key, decision.full, decision.closed)))
    answer = web.ask()
    while answer[0] == 200:
        peer = f"10.0.{len(web.seen) // 250}.{len(web.seen) % 250}"
        answer = web.ask(peer=peer)
    status, fields, body = answer
    check.equal((status, told), (429, [("hourly", f"ip:{peer}", True, False)]), f"{web.kind}: full")
    check.equal([fields.get(name) for name in ("weir-reason", "retry-after", "ratelimit-policy")], ["full", "3600", '"hourly";q=5;w=3600'], f"{web.kind}: its fields")
    names = ["title", "status", "reason", "violated-policies", "allowed", "limit", "remaining", "retry_after", "reset_after", "delay", "granted", "binding", "receipt", "degraded", "local"]
    check.equal((list(json.loads(body)), json.loads(body)["retry_after"]), (names, 3600.0), f"{web.kind}: its body")
    web = client(store_at(), [weir.web.Rule("fixed-window 9/h, sliding-log 8/h", name="wide"), weir.web.Rule("fixed-window 1/d, concurrent 5", key=weir.web.everybody, name="narrow")])
    web.ask()
    check.equal(json.loads(web.ask()[2])["violated-policies"], ["narrow"], f"{web.kind}: which rules deny")
    with tempfile.TemporaryDirectory() as folder:
        store = weir.Store(f"file:{folder}/zone?size=64k")
        web = client(store, [weir.web.Rule("fixed-window 500k/h", name="hourly"), weir.web.Rule("token-bucket 50/s", key=weir.web.everybody)],
                     on_denied=lambda r, decision: {"reason": (decision.full, decision.closed), "rule": r.rule.name, "first": (decision.binding, decision.limit)})
        pathlib.Path(folder, "other").write_text("no zone", encoding="ascii")
        os.rename(f"{folder}/other", f"{folder}/zone")
        checks.until("it fails", lambda: web.ask()[0] != 200)
        status, fields, body = web.ask()
        check.equal((status, json.loads(body), fields["weir-reason"], fields["retry-after"]), (429, {"reason": [False, True], "rule": "hourly", "first": [0, 500000]}, "closed", "1"), f"{web.kind}: closed")
        check.equal(fields["ratelimit"], '"hourly";r=0;t=1,"token-bucket";r=0;t=1', f"{web.kind}: its fields")


@both
def test_same_key(check, client):
    """Two functions that return the same key for some requests: each rule has its own count, and its keys do not depend on the other's."""
    LOGGED.clear()
    store, told = store_at(), []

    def customer(r):
        return "customer:7" if r.header("x-key") else weir.web.by_ip(r)
    web = client(store, [weir.web.Rule("fixed-window 9/h from-first", name="all"), weir.web.Rule("fixed-window 2/h from-first", key=customer, name="customer")],
                 on_denied=lambda r, decision: told.append((r.rule.name, r.key)))
    check.equal([web.ask()[0] for _ in range(3)], [200, 200, 429], f"{web.kind}: by the smaller one")
    check.equal((told, store.peek("ip:192.0.2.7", "fixed-window 9/h from-first").remaining), ([("customer", "customer:ip:192.0.2.7")], 7), f"{web.kind}: counts")
    check.equal((web.ask(headers=[("X-Key", "k")])[0], LOGGED), (200, []), f"{web.kind}: another key")
    check.equal(store.peek("customer:7", "fixed-window 2/h from-first").remaining, 1, f"{web.kind}: it begins with the rule's name")
    check.contains(raised(lambda: client(store_at(), [weir.web.Rule("fixed-window 1/h", name="a"), weir.web.Rule("fixed-window 2/h", name="b")]), weir.ESHARED),
                   'of the rules "a" and "b"; give each its own key', f"{web.kind}: at the start")


@both
def test_chosen_keys(check, client):
    """A client that chooses the key of one rule neither gets around another rule, nor uses up what others have."""
    store = store_at()
    rules = [weir.web.Rule("fixed-window 9/h from-first", key=lambda r: r.header("x-user") or b"nobody", name="user"), "fixed-window 2/h from-first"]
    web = client(store, rules)
    headers = [[], [("X-User", "ip:192.0.2.7")], [("X-User", "ip:192.0.2.7")], []]
    check.equal([web.ask(headers=its)[0] for its in headers], [200, 200, 429, 429], f"{web.kind}: around the limit by address")
    web.ask(peer="192.0.2.8", headers=[("X-User", "ip:192.0.2.9")])
    keys = ("ip:192.0.2.7", "ip:192.0.2.9", "user:ip:192.0.2.9", b"user:nobody")
    check.equal([store.peek(key, rules[1]).remaining for key in keys], [0, 2, 1, 1], f"{web.kind}: the keys")
    check.equal(web.ask(peer="192.0.2.6", headers=[("X-User", "\x7f")])[0], 200, f"{web.kind}: any text")
    empty = client(store_at(), [weir.web.Rule(ONCE, key=lambda r: "", name="user"), ONCE])
    check.equal(empty.ask()[0], 400, f"{web.kind}: an empty key is none, also with a name before it")


@both
def test_words(check, client):
    """Which rules' keys begin with a name: functions of the program, beside a limit of the same kind and period."""
    own, other, rule = lambda r: "k", lambda r: "k", weir.web.Rule
    by_user = weir.web.by_header("X-User")
    for rules, wanted in (
            ([rule("fixed-window 9/h"), rule("fixed-window 8/h", key=by_user), rule("fixed-window 7/h", key=weir.web.everybody)], ["", "", ""]),
            ([rule("fixed-window 9/h"), rule("fixed-window 8/d", key=own), rule("sliding-log 7/h", key=other)], ["", "", ""]),
            ([rule("concurrent 9"), rule("concurrent 8 lease 5s", key=own)], ["", "rule2:"]),
            ([rule("sliding-log 100k/h"), rule("concurrent 100k", key=own), rule("sliding-log 99k/h", key=other, name="many")], ["", "", "many:"]),
            ([rule("fixed-window 9/h", key=own), rule("fixed-window 8/h", key=other, name="b")], ["rule1:", "b:"]),
            ([rule("fixed-window 9/h", key=own, name="rule2"), rule("fixed-window 8/h", key=other), rule("fixed-window 7/h", key=lambda r: "k")], ["rule2:", "rule5:", "rule3:"]),
            ([rule("fixed-window 9/h", key=own, name="a"), rule("fixed-window 8/h", key=other, name="a")], ["a:", "rule2:"]),
            ([rule("fixed-window 9/h"), rule("fixed-window 8/h", key=own, name="ip")], ["", "rule2:"]),
            ([rule("fixed-window 9/h", path="/a"), rule("fixed-window 8/h", key=own, name="/a")], ["", "rule2:"]),
            ([rule("fixed-window 9/h", path="/a", key=own), rule("fixed-window 8/h", path="/b", key=own)], ["", ""]),
            ([rule("fixed-window 9/h"), rule("fixed-window 8/h", key=own, shadow=True), rule("fixed-window 8/h", key=own, shadow=True, name="s")],
             ["", "shadow.rule2:", "shadow.s:"])):
        check.equal([it.begins for it in client(store_at(), rules).app.guard.words], wanted, f"{client.kind}: {wanted}")


@both
def test_words_of_paths(check, client):
    """The names of two paths' rules, one of which begins with the other: no user of one is an address of the other. Other keys stay as they are."""
    def user(r):
        return r.header("x-user")
    for short, long, mine, key in (("api", "api:admin", "admin:198.51.100.9", user), ("/v1", "/v1:b", b"b:198.51.100.9", lambda r: user(r).encode()),
                                   ("header.x-user", "header.x-user:b", "b:198.51.100.9", user)):
        store = store_at()
        web = client(store, [weir.web.Rule("fixed-window 9/h from-first", key=key, name=short, path="/a"), weir.web.Rule("fixed-window 2/h from-first", name=long, path="/b")])
        spelled = mine if isinstance(mine, str) else mine.decode()
        check.equal([web.ask("/a", headers=[("X-User", spelled)])[0] for _ in range(3)], [200, 200, 200], f"{web.kind}: {short}")
        check.equal(web.ask("/b", peer="198.51.100.9")[0], 200, f"{web.kind}: {long} has its own count")
        web.ask("/a", headers=[("X-User", "ann")])
        keys = (f"{short}:ann", f"rule1:{short}:{spelled}", f"{long}:198.51.100.9")
        check.equal([store.peek(it, "fixed-window 9/h from-first").remaining for it in keys], [8, 6, 8], f"{web.kind}: the keys of {short}")
    store = store_at()
    web = client(store, [weir.web.Rule("fixed-window 9/h", key=weir.web.by_header("X-User")), weir.web.Rule("fixed-window 2/h", name="no-header.x-user", path="/b"),
                         weir.web.Rule("token-bucket 2/h", name="header.x-user:t", path="/c")])
    web.ask("/a")
    web.ask("/a", headers=[("X-User", "t:1")])
    left = [store.peek(it, "fixed-window 9/h").remaining for it in ("rule1:no-header.x-user:192.0.2.7", "header.x-user:t:1")]
    check.equal(left, [8, 8], f"{web.kind}: a field that is missing; a limit of another kind")
    rules = [weir.web.Rule("fixed-window 3/h", key=user, name="s", path=path) for path in ("/a", "/b")]
    web = client(store_at(), [*rules, weir.web.Rule("fixed-window 5/h", name="s:b", path="/c")])
    check.equal([web.ask(path, headers=[("X-User", "b:1")])[0] for path in ("/a", "/b", "/a", "/b")], [200, 200, 200, 429], f"{web.kind}: one name is one count")


@both
def test_words_of_shadows(check, client):
    """No client charges the count of a rule in shadow by a key that it chooses. To try a rule changes no other key of an enforced one."""
    def user(r):
        return r.header("x-user")
    mine, theirs = "fixed-window 9/h from-first", "fixed-window 5/h from-first"
    for key in (user, lambda r: user(r).encode()):
        store = store_at()
        enforced, tried = weir.web.Rule(mine, key=key), weir.web.Rule(theirs, name="a", shadow=True)
        web = client(store, [enforced, tried, weir.web.Rule("token-bucket 5/s", name="b", shadow=True)])
        for its in ("shadow.a:ip:198.51.100.9", "shadow.b:x", "ann"):
            web.ask(headers=[("X-User", its)])
        left = {its: store.peek(its, mine).remaining for its in ("shadow.a:ip:198.51.100.9", "rule1:shadow.a:ip:198.51.100.9", "shadow.b:x", "ann")}
        check.equal(list(left.values()), [9, 8, 8, 8], f"{web.kind}: {left}")
        check.equal(store.peek("shadow.a:ip:192.0.2.7", theirs).remaining, 2, f"{web.kind}: the rule in shadow has its own count")
    own = weir.web.Rule(mine, key=user, name="shadow.a")
    words = [client(store_at(), rules).app.guard.words[-1].begins for rules in ([mine, own], [mine, tried, own])]
    check.equal(words, ["shadow.a:"] * 2, f"{client.kind}: a name like the beginning of a rule in shadow")


def store_left(client, rules):
    """What a request of ann to /a leaves under the key export:ann."""
    store = store_at()
    client(store, rules).ask("/a", headers=[("X-User", "ann")])
    return store.peek("export:ann", rules[0].limit).remaining


@both
def test_shared_paths(check, client):
    """Rules of two paths count apart, whatever their keys are; those of one name are one count. Where a request can be at both, that is a
    mistake; one that only seems to be gets 400."""
    def account(r):
        return r.header("x-user")

    def rules(*paths, name="shared", key=account):
        return [weir.web.Rule("fixed-window 3/h from-first", key=key, path=path, name=name) for path in paths]
    user = [("X-User", "ann")]
    for key in (account, weir.web.by_header("X-User"), weir.web.everybody, weir.web.by_ip):
        store = store_at()
        web = client(store, [weir.web.Rule(f"fixed-window {count}/h from-first", key=key, path=path) for path, count in (("/a", 9), ("/b", 1))])
        check.equal([web.ask(path, headers=user)[0] for path in ("/a", "/a", "/b", "/b", "/a")], [200, 200, 200, 429, 200], f"{web.kind}: {key} at each path")
    check.equal(store_left(client, rules("/a", name="export")), 2, f"{client.kind}: a key begins with the rule's name")
    web = client(store_at(), [*rules("/a/*", "/b"), "fixed-window 9/h from-first"])
    check.equal([web.ask(path, headers=user)[0] for path in ("/a/1", "/b", "/a/2", "/b")], [200, 200, 200, 429], f"{web.kind}: one count")
    check.equal(web.ask("/a/../b", headers=user)[0], 400, f"{web.kind}: two readings")
    for paths in (("/a", "/a"), ("/a/*", "/a/b"), ("/a/*", "/a"), ("/*", "/a/*"), ("/*", "/")):
        check.contains(raised(lambda paths=paths: client(store_at(), rules(*paths)), weir.ESHARED), "give each its own key", f"{web.kind}: {paths}")
    with tempfile.TemporaryDirectory() as folder:
        web = client(weir.Store(f"file:{folder}/zone?size=64k"), rules("/a/*", "/b"))
        pathlib.Path(folder, "other").write_text("no zone", encoding="ascii")
        os.rename(f"{folder}/other", f"{folder}/zone")
        checks.until("it fails", lambda: web.ask("/b", headers=user)[1].get("weir-reason") == "closed")
        check.equal(web.ask("/a/../b", headers=user)[1].get("weir-reason"), "closed", f"{web.kind}: a store that fails, and equal keys")


@both
def test_shadow_mistakes(check, client):
    """What a rule in shadow does not know, it does not decide. The answer stays the same."""
    def wrong(r):
        raise KeyError("wrong")
    shadow = weir.web.Rule(ONCE, name="s", shadow=True)
    for what, its in (("a key that raises", {"key": wrong}), ("a cost that raises", {"cost": wrong}), ("a text as the cost", {"cost": lambda r: "1"}),
                      ("a negative cost", {"cost": lambda r: -1}), ("an immense cost", {"cost": lambda r: 10 ** 30}), ("a number as the key", {"key": lambda r: 5}),
                      ("an empty key", {"key": lambda r: ""}), ("no address", {"key": weir.web.by_ip}), ("a bad path", {"path": "/a"})):
        LOGGED.clear()
        web = client(store_at(), [weir.web.Rule("fixed-window 9/h", key=weir.web.everybody), shadow._replace(**its)], trusted_hops=1)
        check.equal(web.ask("/a\n", headers=[("X-Forwarded-For", "unknown")])[0], 200, f"{web.kind}: {what}")
        check(len(LOGGED) == 1 and "rules in shadow are not decided" in LOGGED[0], f"{web.kind}: {what}, the log: {LOGGED}")


@both
def test_shadow_beside(check, client):
    """A rule in shadow whose key or cost is none leaves the other ones decided."""
    for its in ({"cost": lambda r: -1}, {"key": lambda r: "\ud800"}, {"key": lambda r: "x" * 70000}, {"cost": lambda r: "1"}):
        store, told = store_at(), []
        rules = [weir.web.Rule(ONCE, name="s", shadow=True, **its), weir.web.Rule(ONCE, name="t", shadow=True), weir.web.Rule(ONCE, name="u", shadow=True, **its)]
        web = client(store, rules, on_shadow=lambda r, decision, told=told: told.append(r.rule.name))
        check.equal(([web.ask()[0] for _ in range(2)], told), ([200, 200], ["t"]), f"{web.kind}: beside {its}")


@both
def test_one_line(check, client):
    """What a client writes forges no line of the log, and fills no screen."""
    def wrong(r):
        raise ValueError(f"not a user: {r.header('x-user')}")
    path, user = "/a\nweir: forged \x1b[31m", "b\r\nforged\x1b" + "x" * 5000
    shadow = weir.web.Rule("fixed-window 1/h", name="s", shadow=True)
    for rule, wanted in ((shadow._replace(cost=lambda r: 2), "as one for '/a\\nweir: forged \\x1b[31m'"), (shadow._replace(key=wrong), "not a user: b\\r\\nforged\\x1bxxx")):
        LOGGED.clear()
        client(store_at(), rule).ask(path, headers=[("X-User", user)])
        check(len(LOGGED) == 1 and wanted in LOGGED[0] and LOGGED[0].isprintable() and len(LOGGED[0]) < 700, f"{client.kind}: {LOGGED}")
    LOGGED.clear()
    check.equal(client(store_at(), ONCE, trusted_hops=1).ask(headers=[("X-Forwarded-For", user)])[0], 400, f"{client.kind}: no address")
    check(len(LOGGED) == 1 and len(LOGGED[0]) < 300, f"{client.kind}: cut: {LOGGED}")


@both
def test_shadow(check, client):
    """A rule in shadow is decided and told, and refuses nobody. Its count is its own."""
    store, told, rules = store_at(), [], ["fixed-window 4/h from-first", weir.web.Rule("fixed-window 1/h from-first", name="strict", shadow=True)]
    web = client(store, rules, on_shadow=lambda r, decision: told.append((r.rule.name, r.key, decision.retry_after_us, r.denied)), on_denied=lambda r, d: told.append(r.rule.limit.text))
    check.equal([web.ask()[0] for _ in range(5)], [200, 200, 200, 200, 429], f"{web.kind}: by the other rule")
    one = ("strict", "shadow.strict:ip:192.0.2.7", 3_600_000_000)
    check.equal(told, [*[(*one, False)] * 3, (*one, True), "fixed-window 4/h from-first"], f"{web.kind}: what is told, and that the other rule denies as well")
    LOGGED.clear()
    web = client(store_at(), ["fixed-window 1/h from-first", rules[1]])
    web.ask()
    check.equal((web.ask()[0], LOGGED), (429, ["weir: the rule \"strict\", in shadow, would deny requests, as one for '/', which is denied anyway"]), f"{web.kind}: so does the log")
    flags, wrong = [], weir.web.Rule("fixed-window 9/h", key=lambda r: "" if r.header("x-bad") else None)
    web = client(store_at(), [wrong, rules[1]], on_shadow=lambda r, decision: flags.append(r.denied))
    statuses = [web.ask(headers=[("X-Bad", "1")] * bad)[0] for bad in (0, 1, 0)]
    check.equal((statuses, flags), ([200, 400, 200], [True, False]), f"{web.kind}: a request that gets 400; no rule that applies")
    LOGGED.clear()
    web = client(store_at(), rules[1])
    answers = [web.ask() for _ in range(3)]
    check.equal(([status for status, _, _ in answers], "ratelimit" in answers[0][1], web.seen), ([200, 200, 200], False, [None] * 3), f"{web.kind}: alone")
    check(len(LOGGED) == 1 and 'the rule "strict", in shadow, would deny' in LOGGED[0], f"{web.kind}: the log: {LOGGED}")
    web = client(store_at(), rules[1], on_shadow=lambda r, decision: 1 // 0)
    check.equal([web.ask()[0] for _ in range(2)], [200, 200], f"{web.kind}: on_shadow fails")
    web = client(store_at(), weir.web.Rule("fixed-window 1/h", key=lambda r: "x" * 70000, shadow=True))
    check.equal(web.ask()[0], 200, f"{web.kind}: a key that is none")
    check.contains(raised(lambda: client(store_at(), weir.web.Rule("concurrent 5", shadow=True)), ValueError), "in shadow and concurrent", f"{web.kind}: slots")


async def coroutine():
    return True


@both
def test_awaitables(check, client):
    """What a function returns, though it does not look async: a coroutine is true, so everybody would be exempt, and a dry run would look clean."""
    web = client(store_at(), ONCE, exempt=lambda r: coroutine())
    check.contains(raised(web.ask, TypeError), "exempt returned an awaitable", f"{web.kind}: nobody is exempt")
    LOGGED.clear()
    web = client(store_at(), weir.web.Rule(ONCE, shadow=True), on_shadow=lambda r, decision: coroutine())
    check.equal([web.ask()[0] for _ in range(2)], [200, 200], f"{web.kind}: in shadow")
    check(any("on_shadow failed" in line for line in LOGGED), f"{web.kind}: the log: {LOGGED}")


@both
def test_rules(check, client):
    for rule, kind, part in ((weir.web.Rule(ONCE, key=weir.web.by_header), TypeError, 'expected a call of it, as by_header("X-User")'),
                             (weir.web.Rule(ONCE, name="Ärger"), ValueError, "invalid name 'Ärger': expected printable ASCII")):
        check.contains(raised(lambda rule=rule: client(store_at(), rule), kind), part, f"{client.kind}: at the start")
    check.contains(raised(lambda: weir.web.by_header(lambda r: "x"), TypeError), "needs the name of a field", "by_header of a function")
    keys = []
    web = client(store_at(), weir.web.Rule(ONCE, key=weir.web.by_header("X-Key", secret=True)), on_denied=lambda r, decision: keys.append(r.key))
    for value in ("s3cret", "s3cret", "", ""):
        web.ask(headers=[("X-Key", value)])
    check.equal(keys, ["header.x-key:1ec1c26b50d5d3c5", "no-header.x-key:192.0.2.7"], f"{client.kind}: a secret, and an empty field")


@both
def test_which_rule(check, client):
    """on_denied sees which rule denied, and its key, also where other rules do not apply or have several limits."""
    told, store = [], store_at()
    web = client(store, [weir.web.Rule(ONCE, key=lambda r: b"never" if r.path == "/never" else None, name="never"),
                         "fixed-window 9/h from-first, fixed-window 3/d from-first",
                         weir.web.Rule(ONCE, key=lambda r: f"login:{r.ip}" if r.path == "/login" else None, name="login")],
                 on_denied=lambda r, decision: told.append((r.rule.name, str(r.rule.limit), r.key, decision.binding)))
    check.equal([web.ask(path)[0] for path in ("/login", "/login", "/never", "/never", "/", "/")], [200, 429, 200, 429, 200, 429], f"{web.kind}: statuses")
    check.equal(told, [("login", ONCE, "login:192.0.2.7", 2), ("never", ONCE, b"never:never", 0),
                       (None, "fixed-window 9/h from-first, fixed-window 3/d from-first", "ip:192.0.2.7", 1)], f"{web.kind}: rules and keys")
    store.reset(told[0][2])
    store.reset(told[2][2])
    check.equal(web.ask("/login")[0], 200, f"{web.kind}: keys to reset by")
    web = client(store_at(), weir.web.Rule(ONCE, key=lambda r: r.key))
    check.contains(raised(web.ask, AttributeError), "key", f"{web.kind}: before a denial there is none")


@both
def test_own_body(check, client):
    web = client(store_at(), ONCE, on_denied=lambda request, decision: {"error": "slow down", "after": decision.retry_after_us // 1_000_000})
    web.ask()
    status, fields, body = web.ask()
    check.equal((status, json.loads(body), fields["content-type"]), (429, {"error": "slow down", "after": 3600}, "application/json"), f"{web.kind}: a dict")
    check.equal([fields.get(name) for name in ("retry-after", "weir-reason", "cache-control", "ratelimit", "content-length")],
                ["3600", "limit", "no-store", '"fixed-window";r=0;t=3600', str(len(body))], f"{web.kind}: its fields")
    check.equal(web.ask(method="HEAD")[2], b"", f"{web.kind}: HEAD")
    make = flask.Response if client is Wsgi else fastapi.responses.PlainTextResponse
    for given, wanted in ((200, 429), (503, 503)):
        web = client(store_at(), ONCE, on_denied=lambda request, decision, given=given: make("later", given, {"Retry-After": "7", "X-Own": "1"}))
        web.ask()
        status, fields, body = web.ask()
        check.equal((status, body, fields["retry-after"], fields["x-own"], fields["weir-reason"], "ratelimit" in fields),
                    (wanted, b"later", "7", "1", "limit", True), f"{web.kind}: a response of {given}")
        check.equal(len(web.seen), 1, f"{web.kind}: the application did not see it")


@both
def test_mistakes(check, client):
    check.contains(raised(lambda: client(store_at(), ONCE, on_denied=5), TypeError), "a function of the request and the decision", f"{client.kind}: a number")
    web = client(store_at(), ONCE, on_denied=lambda request, decision: "slow down")
    web.ask()
    LOGGED.clear()
    check.equal((web.ask()[0], len(LOGGED)), (429, 1), f"{web.kind}: a text")
    check.contains(LOGGED[0], "on_denied returned 'slow down': expected None, a dict, or an application", f"{web.kind}: the log")
    web = client(store_at(), ONCE, on_denied=lambda request, decision: 1 // 0)
    web.ask()
    LOGGED.clear()
    status, fields, body = web.ask()
    check.equal((status, fields["weir-reason"], json.loads(body)["status"], len(web.seen)), (429, "limit", 429, 1), f"{web.kind}: what it raises is no answer")
    check(len(LOGGED) == 1 and "on_denied failed, so the usual answer is sent: integer division" in LOGGED[0], f"{web.kind}: the log: {LOGGED}")
    for name, part in (("trusted_proxies", "did you mean trusted_hops?"), ("onDenied", "did you mean on_denied?"), ("skip", "there are exempt, on_error")):
        check.contains(raised(lambda name=name: client(store_at(), ONCE, **{name: 1}), TypeError), part, f"{client.kind}: {name}=")


def test_async(check):
    """on_denied of ASGI may be async; of a WebSocket it is told, and the handshake is refused."""
    told, sent = [], []

    async def on_denied(request, decision):
        await asyncio.sleep(0)
        told.append(request.path)
        return fastapi.responses.JSONResponse({"own": True})
    web = Asgi(store_at(), ONCE, on_denied=on_denied)
    web.ask()
    status, _, body = web.ask("/http")
    check.equal((status, body), (429, b'{"own":true}'), "async")

    async def send(message):
        sent.append(message["type"])
    asyncio.run(web.app({"type": "websocket", "path": "/socket", "headers": [], "client": ["192.0.2.7", 1]}, None, send))
    check.equal((told, sent), (["/http", "/socket"], ["websocket.close"]), "a WebSocket")


@both
def test_second_rule(check, client):
    """A limit of one route, beside that of all."""
    store = store_at()
    web = client(store, ["fixed-window 9/h from-first",
                         weir.web.Rule("fixed-window 2/h from-first", key=lambda r: f"login:{r.ip}" if r.path == "/login" else None, name="login")])
    check.equal([web.ask("/login")[0] for _ in range(3)] + [web.ask("/")[0]], [200, 200, 429, 200], f"{web.kind}: two logins, then other pages")
    web.ask("/login", peer="2001:db8:1:2::9")
    check.equal(store.peek("login:2001:db8:1:2::/64", "fixed-window 2/h from-first").remaining, 1, f"{web.kind}: r.ip is the network")


# ---- weir.Denied in frameworks: README.md has these handlers ----

def test_decorated_flask(check):
    app, store = flask.Flask("decorated"), store_at()

    @app.errorhandler(weir.Denied)
    def denied(error):
        return {"error": "too many requests"}, 429, error.fields()

    @app.route("/")
    @weir.limited(store, ONCE, key="index")
    def index():
        return "ok"
    first, second = app.test_client().get("/"), app.test_client().get("/")
    check.equal((first.status_code, second.status_code, second.json, second.headers["Retry-After"]), (200, 429, {"error": "too many requests"}, "3600"), "Flask")


def test_decorated_fastapi(check):
    app, store = fastapi.FastAPI(), store_at()

    @app.exception_handler(weir.Denied)
    async def denied(request, error):
        return fastapi.responses.JSONResponse({"error": "too many requests"}, 429, dict(error.fields()))

    @app.get("/sync")
    @weir.limited(store, ONCE, key="sync")
    def sync():
        return "ok"

    @app.get("/async")
    @weir.limited(store, ONCE, key="async")
    async def other():
        return "ok"
    web = Asgi(store_at(), "fixed-window 99/h", app)
    for path in ("/sync", "/async"):
        first, second = web.ask(path), web.ask(path)
        check.equal((first[0], second[0], second[2], second[1]["retry-after"]), (200, 429, b'{"error":"too many requests"}', "3600"), f"FastAPI: {path}")


# ---- addresses ----

@both
def test_bad_addresses(check, client):
    """What a client or a proxy writes into X-Forwarded-For gives 400, and no traceback. What the program lacks is raised."""
    forwarded = [("X-Forwarded-For", "unknown")]
    for options in ({}, {"on_error": "allow"}):
        web = client(store_at(), ONCE, trusted_hops=1, **options)
        LOGGED.clear()
        status, fields, body = web.ask(headers=forwarded)
        check.equal((status, fields["content-type"], json.loads(body)["detail"], web.seen),
                    (400, "application/problem+json", "an entry of X-Forwarded-For is not an address", []), f"{web.kind}: not an address")
        web.ask(headers=forwarded)
        check.equal(set(LOGGED), {"weir: a request is refused: X-Forwarded-For: 'unknown' is not an address: is trusted_hops the number of proxies?"},
                    f"{web.kind}: the log")
    web = client(store_at(), weir.web.Rule(ONCE, key=weir.web.everybody), trusted_hops=1, on_denied=lambda request, decision: {"ip": request.ip})
    web.ask()
    check.equal(web.ask(headers=forwarded)[0], 400, f"{web.kind}: on_denied that asks for it")
    for hops, part in ((0, "set trusted_hops"), (2, "X-Forwarded-For is missing: the last of the 2 proxies")):
        web = client(store_at(), ONCE, trusted_hops=hops)
        check.contains(raised(lambda web=web: web.ask(peer=None), weir.web.NoAddress), part, f"{web.kind}: a Unix socket, {hops} hops")
    check.contains(raised(lambda: client(store_at(), ONCE).ask(peer="testclient"), weir.web.NoAddress), "'testclient', which is not", f"{web.kind}: of the server")
    store = store_at()
    client(store, ONCE, trusted_hops=3).ask(headers=[("X-Forwarded-For", "198.51.100.1, 198.51.100.2")])
    check.equal(store.peek("ip:198.51.100.1", ONCE).remaining, 0, f"{web.kind}: fewer entries than hops: the first one counts")
    for hops in (-1, "proxy", None):
        check.contains(raised(lambda hops=hops: client(store_at(), ONCE, trusted_hops=hops), ValueError), f"invalid trusted_hops {hops!r}", f"{client.kind}: hops")


UVICORN = """
import weir.asgi
async def plain(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})
def limited(hops):
    return weir.asgi.RateLimit(plain, "memory:64k", "fixed-window 1/d from-first", trusted_hops=hops, exempt=["/health"])
apps = {"/": limited(0), "/health": limited(0), "/hops": limited(1), "/server": limited("server")}
async def app(scope, receive, send):
    if scope["type"] == "http":
        await apps[scope["path"]](scope, receive, send)
"""


FLASK = """
import flask, logging, weir.wsgi
logging.basicConfig(format="%(name)s %(message)s")
app = flask.Flask(__name__)
app.route("/")(app.route("/health")(lambda: "ok"))
app.wsgi_app = weir.wsgi.RateLimit(app.wsgi_app, STORE, "fixed-window 2/d from-first", exempt=["/health"],
                                   on_denied=lambda r, decision: {"key": r.key, "limit": str(r.rule.limit)})
"""
PROXY = "have X-Forwarded-For, but trusted_hops is 0"


def in_flask(folder, store, *words):
    """gunicorn with one worker."""
    port = ports.take()
    pathlib.Path(folder, "web.py").write_text(FLASK.replace("STORE", repr(store)), encoding="utf-8")
    command = [bindings.PYTHON, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--timeout", "300", *words, "web:app"]
    return bindings.Workers(command, port, env=os.environ, cwd=folder, path="/health")


def test_proxy(check):
    """A proxy nearby, and no trusted_hops: all its clients are one, and the log says so, once."""
    with tempfile.TemporaryDirectory() as folder, in_flask(folder, "memory:64k") as workers:
        check.equal(bindings.ask(workers.port, "/")[0], 200, "without a proxy")
        check(PROXY not in workers.output(), "no word of it")
        answers = [bindings.ask(workers.port, "/", headers={"X-Forwarded-For": f"198.51.100.{i}"}) for i in range(3)]
        check.equal([status for status, _, _ in answers], [200, 429, 429], "others share the limit")
        check.equal(json.loads(answers[2][2]), {"key": "ip:127.0.0.1", "limit": "fixed-window 2/d from-first"}, "by which key and limit")
        check.equal(workers.output().count(f"weir weir: requests from 127.0.0.1 {PROXY}"), 1, workers.output())
    check(not weir.web.PROXY_TOLD.locked(), "this process has not told it yet")
    for client in (Wsgi, Asgi):
        LOGGED.clear()
        client(store_at(), ONCE).ask(peer="8.8.8.8", headers=[("X-Forwarded-For", "198.51.100.1")])
        client(store_at(), ONCE, trusted_hops=1).ask(peer="10.0.0.1", headers=[("X-Forwarded-For", "198.51.100.1")])
        check.equal(LOGGED, [], f"{client.kind}: a stranger who sends the field, and a proxy that is trusted")


def test_replaced(check):
    """If somebody removes a zone under running workers and makes another one, they go on in that one, and say so."""
    with tempfile.TemporaryDirectory() as folder, in_flask(folder, f"file:{folder}/zone?size=64k") as workers:
        seen = [bindings.ask(workers.port, "/")[0] for _ in range(3)]
        check.equal(seen, [200, 200, 429], "at first")
        os.unlink(f"{folder}/zone")
        with weir.Store(f"file:{folder}/zone?size=64k") as other:
            other.take("ip:127.0.0.1", "fixed-window 2/d from-first")
            answers = []
            checks.until("the worker sees it", lambda: answers.append(bindings.ask(workers.port, "/")) or answers[-1][0] == 200)
            check.equal({fields.get("weir-reason") for _, fields, _ in answers}, {"limit", None}, "never closed")
            check.equal(bindings.ask(workers.port, "/")[0], 429, "both count in one zone")
        check.equal(workers.output().count("was replaced"), 1, "the log")


def statuses(port, path):
    """Of a client that says to be others."""
    return [bindings.ask(port, path, headers={"X-Forwarded-For": field} if field else {})[0]
            for field in ("198.51.100.1, 192.0.2.1", "198.51.100.2, 192.0.2.1", None, None)]


def test_servers(check):
    """uvicorn takes the address from X-Forwarded-For by itself. No client gets through by that."""
    uvicorn, gunicorn = ["uvicorn", "--port", "PORT", "--log-level", "critical"], ["gunicorn", "-k", "uvicorn.workers.UvicornWorker", "--bind", "127.0.0.1:PORT"]
    for words, plain, server in ((uvicorn, [400, 400, 200, 429], [200, 429, 200, 429]),
                                 ([*uvicorn, "--forwarded-allow-ips", "*"], [400, 400, 200, 429], [200, 200, 200, 429]),
                                 ([*uvicorn, "--no-proxy-headers"], [200, 429, 429, 429], [200, 429, 429, 429]),
                                 ([*gunicorn, "--forwarded-allow-ips", "*"], [400, 400, 200, 429], [200, 200, 200, 429]),
                                 ([*gunicorn, "--forwarded-allow-ips", ""], [200, 429, 429, 429], [200, 429, 429, 429])):
        port, name = ports.take(), " ".join(words[:1] + words[-2:])
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "web.py").write_text(UVICORN, encoding="utf-8")
            command = [bindings.PYTHON, "-m", *[word.replace("PORT", str(port)) for word in words], "web:app"]
            with bindings.Workers(command, port, env=os.environ, cwd=folder, path="/health") as workers:
                check.equal(statuses(port, "/"), plain, f"{name}: trusted_hops=0")
                check.equal(statuses(port, "/hops"), [200, 429, 200, 429], f"{name}: one proxy, whose last entry counts")
                check.equal(statuses(port, "/server"), server, f"{name}: what the server says")
                check.equal(workers.output().count(PROXY), 400 not in plain, f"{name}: the log has a word of the proxy")
                check.equal(400 in plain, "has put an address of X-Forwarded-For in the place" in workers.output(), f"{name}: the log")


TESTS = [test_told, test_full_and_closed, test_same_key, test_chosen_keys, test_words, test_words_of_paths, test_words_of_shadows, test_shared_paths, test_shadow_mistakes, test_shadow_beside, test_one_line, test_shadow, test_awaitables, test_rules, test_which_rule, test_own_body, test_mistakes, test_async, test_second_rule, test_decorated_flask, test_decorated_fastapi, test_bad_addresses, test_proxy, test_replaced, test_servers]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
