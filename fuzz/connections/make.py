"""Makes scripts: some connections at once, each with questions of every kind in one of the protocols, in any spelling, and
clients that are fair, in a hurry, slow, rude or mad. Everything follows from the dice."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from lib import h2_frames as h2
from script import Step, send  # noqa: E402

TOKEN = "fuzz-token"
LARGEST_BODY = 131072
HTTP2_WINDOW = 60000  # of all bodies that a client may send unasked
SPELT_ODDLY = 60  # characters; what follows is padding, all letters
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"


class Numbers:
    """One number after the other: of connections, of questions."""

    def __init__(self):
        self.last = 0

    def next(self):
        self.last += 1
        return self.last


def limit_of(n):
    """The count of question n's limits. Neighbours have others, so that answers cannot be mistaken for each other; but
    there are not many, since a store has room for some thousand different limits."""
    return 1000 + n % 151


# ---- spelling ----

def percent(dice, text, odd):
    """A query's text: what must be escaped, and what need not."""
    out = []
    for i, char in enumerate(text):
        if i == SPELT_ODDLY:
            return "".join(out) + text[i:]
        byte = ord(char)
        if char == " ":
            out.append(dice.choice(("+", "%20")))
        elif dice.random() < odd or not (char.isalnum() or char in "-._~/:,"):
            out.append(f"%{byte:02x}" if dice.random() < 0.5 else f"%{byte:02X}")
        else:
            out.append(char)
    return "".join(out)


def query(dice, pairs):
    odd = dice.choice((0, 0, 0.05, 0.5))
    pairs = list(pairs)
    if dice.random() < 0.3:
        dice.shuffle(pairs)
    return "&".join(f"{percent(dice, name, odd)}={percent(dice, str(value), odd)}" for name, value in pairs)


def json_text(dice, text, odd):
    head, tail = text[:SPELT_ODDLY], text[SPELT_ODDLY:]
    if odd:
        head = "".join(f"\\u{ord(char):04x}" if dice.random() < odd else char for char in head)
    return f'"{head}{tail}"'


def json_value(dice, value, odd, blank):
    if isinstance(value, dict):
        inner = f",{blank}".join(f"{json_text(dice, name, odd)}{blank}:{blank}{json_value(dice, it, odd, blank)}"
                                 for name, it in value.items())
        return "{" + blank + inner + blank + "}"
    if isinstance(value, list):
        return "[" + ",".join(json_value(dice, it, odd, blank) for it in value) + "]"
    return json_text(dice, value, odd) if isinstance(value, str) else json.dumps(value)


def body(dice, value):
    text = json_value(dice, value, dice.choice((0, 0, 0.05, 0.5)), dice.choice(("", "", " ", "\r\n\t"))).encode()
    if len(text) <= LARGEST_BODY:
        return text
    text = json.dumps(value).encode()
    return text if len(text) <= LARGEST_BODY else json.dumps({**value, "requests": value["requests"][:1]}).encode()


# ---- questions over HTTP: (method, target, body or None, want) ----

def padding(dice):
    return "p" * dice.choice((0, 0, 0, 0, 1, 100, 3000)) if dice.random() < 0.95 else "q" * dice.randrange(60000)


def ask(dice, path, members, want):
    """By query or by JSON, as it falls."""
    size = sum(len(str(value)) for value in members.values())
    if dice.random() < 0.5 and size < 2000 and path in ("/v1/take", "/v1/peek"):
        return ("GET", f"{path}?{query(dice, members.items())}", None, want)
    members = {name: True if value == "true" else value for name, value in members.items()}
    attributes = {name[5:]: members.pop(name) for name in list(members) if name.startswith("attr.")}
    if attributes:
        members["attributes"] = attributes
    return ("POST", path, body(dice, members), want)


def plain(dice, n):
    m = limit_of(n)
    pad = padding(dice)
    verb, left = dice.choice((("take", m - 1), ("take", m - 1), ("peek", m)))
    members = {"key": f"z{n}{pad}", "limit": f"fixed-window {m}/d"}
    if dice.random() < 0.2:
        members["headers"] = dice.choice(("ietf", "ietf-06", "x-ratelimit", "openai", "off"))
    if dice.random() < 0.2:
        members["detail"] = "true"
    if dice.random() < 0.2:
        members["hold"] = "true"
    settle = ("settle", n) if verb == "take" and not pad else ()
    return [ask(dice, f"/v1/{verb}", members, ("limit", m, left, *settle))]


def held(dice, n, longest):
    """The bucket is emptied, then an answer is held until there is more."""
    m = limit_of(n)
    limit = {"key": f"h{n}{padding(dice)}", "limit": f"token-bucket 100/s burst {m}"}
    more = {"cost": dice.randrange(1, longest), "hold": "true"}
    if dice.random() < 0.3:
        more["detail"] = "true"
    return [ask(dice, "/v1/take", {**limit, "cost": m}, ("limit", m)),
            ask(dice, "/v1/take", {**limit, **more}, ("limit", m))]


def by_policy(dice, n):
    """What the policies say; the key comes back."""
    user = f"u{n}" + "p" * dice.choice((0, 0, 0, 100))
    members = {"attr.path": dice.choice(("/u", "/u", "/shaped")), "attr.user": user, "detail": "true"}
    if dice.random() < 0.3:
        members["hold"] = "true"
    return [ask(dice, dice.choice(("/v1/take", "/v1/peek", "/v1/explain")), members, ("key", user))]


def several(dice, n):
    m = limit_of(n)
    limits = f"fixed-window {m}/d, sliding-log 50/s, token-bucket 10/s"
    if dice.random() < 0.5:
        return [ask(dice, "/v1/take", {"key": f"s{n}", "limit": limits, "detail": "true"}, ("text", f"{m}/d"))]
    requests = [{"key": f"a{n}.{i}{padding(dice)}", "limit": f"fixed-window {m}/d", "cost": i} for i in
                range(dice.randrange(1, 5))]
    return [("POST", "/v1/takeall", body(dice, {"requests": requests}), ("limit", m))]


def leases(dice, n):
    m = limit_of(n)
    members = {"key": f"c{n}", "limit": f"concurrent {m - 990} lease 10s"}
    return [("POST", "/v1/acquire", body(dice, members), ("limit", m - 990)),
            ("POST", "/v1/release", body(dice, {**members, "lease": dice.randrange(1, 1 << 40)}), ("status", 404))]


def small(dice, n):
    """What is no decision."""
    m = limit_of(n)
    return [dice.choice((
        ("GET", "/healthz", None, ("text", "OK")),
        ("GET", f"/nothing/{n}", None, ("text", n)),
        ("HEAD", "/healthz", None, ("head", 200)),
        ("POST", "/v1/reset", body(dice, {"key": f"z{n}{padding(dice)}"}), ("text", "reset")),
        ("POST", "/v1/take", body(dice, {"key": "k", "limit": f"fixed-window x{n}/d"}), ("text", f"x{n}")),
        ("GET", f"/v1/take?key=k&limit=fixed-window+x{n}/d", None, ("text", f"x{n}")),
        ("GET", f"/v1/take?key=k&limit=fixed-window+{m}/d&odd{n}=1", None, ("text", f"odd{n}")),
        ("POST", "/v1/settle", body(dice, {"key": "k", "limit": "fixed-window 9/d", "receipt": f"w2-{n}", "actual": 1}),
         ("status", 400)),
        ("POST", "/v1/take", b"{" * dice.randrange(1, 40), ("status", 400)),
        ("POST", "/v1/explain", body(dice, {"key": f"z{n}", "limit": f"fixed-window {m}/d"}), ("limit", m)),
    ))]


def large(dice, n):
    """Answers that are long or take a while."""
    m = limit_of(n)
    load = {"kind": "poisson", "rate": dice.choice((5, 500)), "seconds": dice.choice((2, 20)), "seed": n}
    return [dice.choice((
        ("GET", "/metrics", None, ("text", "weir_build_info")),
        ("GET", "/", None, ("text", "html")),
        ("GET", "/v1/stats", None, ("text", "uptime")),
        ("GET", "/v1/history", None, ("text", "edges")),
        ("GET", "/v1/top", None, ("text", "half_life")),
        ("GET", "/v1/policies", None, ("text", "users")),
        ("POST", "/v1/simulate", body(dice, {"limits": [f"fixed-window {m}/s"], "load": load}), ("text", f"{m}/s")),
    ))]


def questions(dice, numbers, count, longest):
    """About `count` of them; longest: what an answer may be held for, in units of 10 ms."""
    out = []
    only = dice.choice((None, None, plain, held, by_policy))  # sometimes many of a kind
    while len(out) < count:
        n = numbers.next()
        kind = only or dice.choices((plain, held, by_policy, several, leases, small, large), (8, 5, 5, 3, 2, 5, 1))[0]
        out += held(dice, n, longest) if kind is held else kind(dice, n)
    return out


# ---- the wire ----

def http1(dice, question, token):
    method, target, data, want = question
    lines = [f"{method} {target} HTTP/1.1", dice.choice(("Host: localhost", "host:localhost"))]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if dice.random() < 0.1:
        lines.append("X-Filler: " + "f" * dice.choice((10, 1000, 7000)))
    tail = b""
    if data is not None:
        lines.append("Content-Type: application/json")
        if dice.random() < 0.05:
            lines.append("Expect: 100-continue")
        if dice.random() < 0.3:
            lines.append("Transfer-Encoding: chunked")
            cut = dice.randrange(len(data)) if data else 0
            tail = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (data[:cut], data[cut:]) if part)
            tail += b"0\r\n\r\n"
        else:
            lines.append(f"Content-Length: {len(data)}")
            tail = data
    return "\r\n".join([*lines, "", ""]).encode() + tail, want


def chunks(dice, data):
    """In one piece, or as networks and mad clients cut it."""
    if dice.random() < 0.6:
        return [data]
    out = []
    while data:
        size = dice.choice((1, 7, 100, 1000, 8000, 1 << 20)) if len(data) < 20000 else dice.choice((4000, 16384, 1 << 20))
        out.append(data[:size])
        data = data[size:]
        if len(out) > 30:
            out.append(data)
            break
    return out


def over_http1(dice, number, numbers, count, longest, token):
    """Steps of one connection, as groups that stay together."""
    steps = []
    batch, wants = b"", []
    for question in questions(dice, numbers, count, longest):
        data, want = http1(dice, question, token)
        batch += data
        wants.append(Step("want", number, want if token is not None or want[0] == "head" else ("refused",)))
        if dice.random() < 0.1:
            steps += [*wants, *[send(number, part) for part in chunks(dice, batch)]]
            batch, wants = b"", []
    return steps + [*wants, *[send(number, part) for part in chunks(dice, batch)]]


def grpc_message(dice, n):
    """Of a domain of Envoy's rules, or one that policies decide."""
    def field(tag, data):
        return bytes([tag]) + h2.number(len(data), 8)[:1] + data
    def entries(**pairs):
        return b"".join(field(0x0a, field(0x0a, name.encode()) + field(0x12, value.encode())) for name, value in pairs.items())
    if dice.random() < 0.5:
        message = field(0x0a, b"shop") + field(0x12, entries(user=f"e{n}"))
    else:
        users = [f"u{n}"] * dice.randrange(1, 3) + [f"u{n}.{i}" for i in range(dice.randrange(3))]
        message = field(0x0a, b"edge") + b"".join(
            field(0x12, entries(path=dice.choice(("/u", "/u", "/shaped")), user=user)) for user in users)
    return b"\0" + len(message).to_bytes(4, "big") + message


def over_http2(dice, number, numbers, count, longest, token):
    window = dice.choice((None, None, 0, 100, 65535, 1 << 20))
    hello = h2.PREFACE + h2.settings(*dice.sample([(1, 0), (5, 16384)], dice.randrange(3)),
                                     *([(4, window)] if window is not None else []))
    steps = [send(number, hello + h2.window_update(0, dice.choice((1, 1 << 20))))]
    if window in (0, 100):  # a client so slow may be sent away
        steps.append(Step("loose", number, ()))
    stream, batch, wants, room = -1, b"", [], HTTP2_WINDOW
    for method, target, data, want in questions(dice, numbers, min(count, 100), longest):
        if data is not None and len(data) > room:
            continue
        room -= len(data or b"")
        stream += 2
        fields = [("authorization", f"Bearer {token}")] if token else []
        if data is not None:
            fields.append(("content-type", "application/json"))
        if dice.random() < 0.1:
            target, data, want, method = METHOD, grpc_message(dice, numbers.next()), ("any",), "POST"
            fields = [("content-type", "application/grpc"), ("te", "trailers"), *fields[:1 if token else 0]]
        if want[0] == "head":
            want = ("any",)
        head = h2.request(target, method, "localhost", fields)
        if len(head) < 16000:
            batch += h2.headers(stream, head, h2.END_HEADERS | (h2.END_STREAM if data is None else 0))
        else:
            batch += h2.frame(h2.HEADERS, h2.END_STREAM if data is None else 0, stream, head[:16000])
            batch += h2.frame(h2.CONTINUATION, h2.END_HEADERS, stream, head[16000:])
        while data is not None:
            size = dice.choice((1000, 16384))
            batch += h2.frame(h2.DATA, h2.END_STREAM if len(data) <= size else 0, stream, data[:size])
            data = data[size:] or None
        wants.append(Step("want", number, (f"/{stream}", *(want if token is not None else ("refused",)))))
        if dice.random() < 0.05:
            batch += h2.reset(stream)
            wants[-1] = Step("want", number, (f"/{stream}", "gone"))
        if dice.random() < 0.05:
            batch += h2.frame(h2.PING, 0, 0, b"12345678")
        if dice.random() < 0.2:
            batch += h2.window_update(0, 1 << 16) + h2.window_update(dice.randrange(1, stream + 1, 2), 1 << 16)
            steps += [*wants, *[send(number, part) for part in chunks(dice, batch)]]
            batch, wants = b"", []
    if window in (0, 100) and stream > 0 and dice.random() < 0.7:
        batch += b"".join(h2.window_update(each, 1 << 20) for each in range(1, stream + 1, 2))
    return steps + [*wants, *[send(number, part) for part in chunks(dice, batch)]]


def decide(dice, user):
    """WEIR.DECIDE of a user that nobody asked about before: the binding limit admits 1000 at once."""
    pairs = [("path", "/u"), ("user", user), ("header.X-Any", "COST"), ("attr.detail", "DETAIL" + padding(dice))]
    pairs = pairs[:2] + [pair for pair in pairs[2:] if dice.random() < 0.5]
    dice.shuffle(pairs)
    words = ["WEIR.DECIDE", *(["POLICY", "users"] if dice.random() < 0.2 else [])]
    words += [word for pair in pairs for word in pair]
    return (*words, *(["COST", "2"] if dice.random() < 0.3 else []))


def resp_question(dice, n):
    """(words, want)"""
    m = limit_of(n)
    key, limit = f"z{n}{padding(dice)}", f"fixed-window {m}/d"
    settle = ("settle", n) if key == f"z{n}" else ()
    return dice.choice((
        (("WEIR.TAKE", key, limit), ("limit", m, m - 1, *settle)),
        (("WEIR.TAKE", key, limit), ("limit", m, m - 1, *settle)),
        (("weir.take", key, limit, "COST", "2", "DETAIL"), ("limit", m, m - 2)),
        (("WEIR.PEEK", key, limit), ("limit", m, m)),
        (("WEIR.TAKE", key, f"token-bucket 10/s burst {m}", "WAIT", "any"), ("limit", m)),
        (("WEIR.TAKEALL", "2", key, limit, "1", f"y{n}", limit, "1"), ("limit", m)),
        (("WEIR.RESET", key), ("int",)),
        (("WEIR.ACQUIRE", f"c{n}", f"concurrent {m - 990} lease 10s"), ("limit", m - 990)),
        (("WEIR.RELEASE", f"c{n}", f"concurrent {m - 990} lease 10s", "4711"), ("int",)),
        (("WEIR.SETTLE", key, limit, f"w2-{n}-1-0", "0"), ("any",)),
        (decide(dice, f"u{n}"), ("limit", 1000)),
        (decide(dice, f"u{n}"), ("limit", 1000)),
        (("WEIR.DECIDE", "path", "/u", "user", f"u{n}", dice.choice(("user", "header.x", "attr.cost"))), ("text", "has no value")),
        ((*decide(dice, f"u{n}"), "SETTLE", f"w2-{n}-1-0", "0"), ("any",)),
        (("CL.THROTTLE", f"t{n}", str(m - 1), "30", "60"), ("limit", m)),
        (("ECHO", f"e{n}{padding(dice)}"), ("text", f"e{n}")),
        (("PING", f"e{n}"), ("text", f"e{n}")),
        (("NONSENSE", f"e{n}"), ("text", "unknown")),
        (("INFO",), ("any",)),
        (("CLIENT", "ID"), ("any",)),
        (("COMMAND",), ("any",)),
    ))


def resp_words(dice, words):
    if dice.random() < 0.2 and words[0] != "NONSENSE" and not any(len(word) > 1000 for word in words):
        return (" ".join(f'"{word}"' if " " in word else word for word in words) + dice.choice(("\r\n", "\n"))).encode()
    return b"".join([b"*%d\r\n" % len(words), *[b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words]])


def over_resp(dice, number, numbers, count, _longest, token):
    steps, batch, wants = [], b"", []
    if token:
        batch, wants = resp_words(dice, ("AUTH", token)), [Step("want", number, ("ok",))]
    for _ in range(count):
        words, want = resp_question(dice, numbers.next())
        batch += resp_words(dice, words)
        wants.append(Step("want", number, want if token is not None else ("any",)))
        if dice.random() < 0.1:
            steps += [*wants, *[send(number, part) for part in chunks(dice, batch)]]
            batch, wants = b"", []
    return steps + [*wants, *[send(number, part) for part in chunks(dice, batch)]]


# ---- clients ----

def mangled(dice, steps, number):
    """Some bytes changed, lost or doubled: from here on anything but a crash is right."""
    at = [i for i, step in enumerate(steps) if step.verb == "send"]
    for i in dice.sample(at, min(len(at), 2)):
        data = bytearray(steps[i].words[0])
        for _ in range(dice.randrange(1, 5)):
            where = dice.randrange(len(data)) if data else 0
            what = dice.randrange(3)
            if what == 0 and data:
                data[where] = dice.randrange(256)
            elif what == 1:
                del data[where:where + dice.randrange(1, 40)]
            else:
                data[where:where] = dice.choice((b"\r\n", b"\0", b"*1\r\n", b"GET / HTTP/1.1\r\n", data[where:where + 50]))
        steps[i] = send(number, bytes(data))
    return [Step("loose", number, ()), *[step for step in steps if step.verb != "want"]]


def client(dice, number, numbers, world):
    """All steps of one connection."""
    way = dice.choice((over_http1, over_http1, over_http2, over_resp))
    manner = dice.choice(("fair", "fair", "half", "reset", "close", "slow", "slow reset", "mad", "cut"))
    count = dice.choice((1, 2, 5, 20, 70, 150)) if dice.random() < 0.9 else 400
    longest = 2 + 40 // count  # held answers of a pipeline come one after the other: no more than a second in all
    if manner not in ("fair", "half", "slow", "mad"):
        longest = dice.choice((longest, 1000))
    token = TOKEN if world.token else ""
    if world.token and dice.random() < 0.2:
        token = None
    steps = way(dice, number, numbers, count, longest, token)
    if manner == "half" and way is over_http2:
        manner = "fair"
    if token is None:  # such a client may be sent away
        steps.insert(0, Step("loose", number, ()))
    if manner == "half" and any(step.verb == "send" and b"/v1/simulate" in step.words[0] for step in steps):
        steps.insert(0, Step("loose", number, ()))  # who half-closes has given up a simulation
    opening = [Step("open", number, (dice.choice(("tcp", "tcp", "unix")),
                                     *((dice.choice((2048, 16384)),) if "slow" in manner else ())))]
    if manner == "mad":
        steps = mangled(dice, steps, number)
    if manner == "cut":  # within a request
        i = max((i for i, step in enumerate(steps) if step.verb == "send"), default=None)
        if i is not None:
            data = steps[i].words[0]
            steps[i:] = [Step("loose", number, ()), send(number, data[:dice.randrange(len(data) + 1)]),
                         Step(dice.choice(("half", "reset", "close")), number, ())]
    ends = {"half": "half", "reset": "reset", "close": "close", "slow reset": "reset", "slow": "read"}
    if manner in ends:
        steps.append(Step(ends[manner], number, ()))
        if manner in ("reset", "close") and dice.random() < 0.5:
            del steps[dice.randrange(len(steps)):-1]
    return opening + steps


def events(dice, world):
    """What happens beside the clients."""
    if world.redis and dice.random() < 0.4:
        return dice.choice((
            [Step("store", None, ("stop",)), Step("store", None, ("cont",))],
            [Step("store", None, ("pause", dice.choice((5, 30, 200))))],
            [Step("store", None, ("kill",)), Step("store", None, ("start",))] if dice.random() < 0.3 else [],
        ))
    return [Step("reload", None, ())] if dice.random() < 0.05 else []


def round_of(dice, numbers, connections, world):
    """The steps of one round: `connections` gives out their numbers."""
    lines = [client(dice, connections.next(), numbers, world) for _ in range(dice.choice((1, 2, 4, 8, 16)))]
    lines += [events(dice, world)]
    steps = []
    while lines := [line for line in lines if line]:
        line = dice.choice(lines)
        for _ in range(dice.choice((1, 1, 3, 20))):
            if line:
                steps.append(line.pop(0))
        if dice.random() < 0.03:
            steps.append(Step("pause", None, (dice.choice((1, 5, 20)),)))
    return steps
