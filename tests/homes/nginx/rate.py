#!/usr/bin/env python3
"""weir_rate: bytes over time, of one response and of many, in every way in which nginx sends them.

What holds on any machine is checked strictly: up to any moment no more has come than burst + rate * time, and every
body is what was sent. How fast it comes at the least is checked loosely.
"""
import concurrent.futures
import gzip
import hashlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

from lib import checks, clocks, h2_frames, nginx_server
from lib.certificates import make_certificates
from lib.nginx_server import Backend, Nginx, get


RATE, BURST = 1000000, 300000
LIMIT = "token-bucket 1m/s burst 300k"
PAGE = 4096  # what sendfile may send too early, a connection
NOISE = b"".join(hashlib.sha512(str(i).encode()).digest() for i in range(16384))  # 1 MiB that does not compress
ZONE = "weir_zone z 1m;"


class Meter:
    """What came, and when, from the moment it was made."""

    def __init__(self, rate=RATE, burst=BURST, connections=1):
        self.rate, self.most = rate, burst + PAGE * connections
        self.start, self.bytes, self.over, self.lock = clocks.now(), 0, 0, threading.Lock()

    def note(self, size):
        with self.lock:
            self.bytes += size
            self.over = max(self.over, self.bytes - self.most - self.rate * self.seconds)

    @property
    def seconds(self):
        return clocks.now() - self.start

    def check(self, check, what):
        check(self.over <= 0, f"{what}: {self.over:.0f} bytes came too early")

    def check_speed(self, check, what):
        """Loosely: neither a stall nor a fraction of the rate."""
        ideal = max(0, self.bytes - self.most) / self.rate
        check(self.seconds < 3 * ideal + 60, f"{what}: {self.bytes} bytes took {self.seconds:.1f} s, not {ideal:.1f}")


def connect(port, tls=False, **options):
    plain = socket.create_connection(("127.0.0.1", port), timeout=nginx_server.PATIENCE_SECONDS, **options)
    if not tls:
        return plain
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain)


def receive(connection, meter=None):
    """All that comes until the end."""
    parts = []
    while part := connection.recv(1 << 16):
        if meter:
            meter.note(len(part))
        parts.append(part)
    return b"".join(parts)


def download(nginx, path, meter=None, port="port", tls=False, fields=None):
    """The head (text) and the body of an answer."""
    with connect(nginx.port_of(port), tls) as connection:
        connection.sendall(get(path, {"connection": "close", **(fields or {})}))
        head, _, body = receive(connection, meter).partition(b"\r\n\r\n")
    return head.decode("latin-1"), body


def parallel(calls):
    """The results of these functions, called at the same time."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [it.result() for it in [pool.submit(call) for call in calls]]


def check_one(check, nginx, path, what, **options):
    """One response is as it should be, and not too early."""
    meter = Meter()
    head, body = download(nginx, path, meter, **options)
    check(head.startswith("HTTP/1.1 200"), f"{what}: {head.splitlines()[:1]}")
    check(body == NOISE, f"{what}: the body is not what was sent ({len(body)} bytes)")
    meter.check(check, what)
    meter.check_speed(check, what)


def location(path, more="", key="$arg_k", limit=LIMIT):
    return f'location {path} {{ weir_rate key={key} zone=z "{limit}"; {more} }}\n'


# ---- how much comes ----

def test_one(check):
    server = "sendfile on;\n" + location("/") + location("/nosendfile/", "sendfile off; alias {folder}/html/;")
    with Nginx(ZONE, server, files={"html/noise": NOISE}) as nginx:
        check_one(check, nginx, "/noise?k=a", "sendfile")
        check_one(check, nginx, "/nosendfile/noise?k=b", "without sendfile")
        meter = Meter(burst=0)
        download(nginx, "/noise?k=a", meter)
        check(meter.seconds > len(NOISE) / RATE - BURST / RATE, "the burst is spent, the next one gets what came since")
        check("weir" not in nginx.errors(), f"nothing to complain of: {nginx.errors()[-500:]}")


def test_four(check):
    """Of two workers, each of which sends some."""
    server = "listen 127.0.0.1:{port2} reuseport;\n" + location("/")
    with Nginx(ZONE, server, workers=2, files={"html/noise": NOISE}) as nginx:
        meter = Meter(connections=4)
        bodies = parallel([lambda: download(nginx, "/noise?k=a", meter, port="port2")[1]] * 4)
        check(all(body == NOISE for body in bodies), f"four bodies are whole: {[len(body) for body in bodies]}")
        meter.check(check, "four together")
        meter.check_speed(check, "four together")


def test_fair(check):
    """Those that share a key get about the same."""
    with Nginx(ZONE, location("/"), files={"html/noise": NOISE}) as nginx:
        parts, seen = [Meter() for _ in range(4)], []

        def one(meter):
            download(nginx, "/noise?k=a", meter)
            seen.append([it.bytes for it in parts])
        parallel([lambda it=it: one(it) for it in parts])
        check(min(seen[0]) > max(seen[0]) / 4, f"when the first has all, the others have {seen[0]}")


def test_keys(check):
    """Another key is not held up, however much the first one has to wait."""
    server = location("/") + location("/other", "alias {folder}/html/noise;", limit="token-bucket 1m/s burst 4m")
    with Nginx(ZONE, server, files={"html/noise": NOISE}) as nginx:
        done = []

        def one(path):
            body = download(nginx, path)[1]
            done.append(path)
            return body
        paths = ["/noise?k=a"] * 4 + ["/other?k=b", "/noise"]
        bodies = parallel([lambda path=path: one(path) for path in paths])
        check(all(body == NOISE for body in bodies), f"all bodies are whole: {[len(body) for body in bodies]}")
        check.equal(set(done[:2]), {"/other?k=b", "/noise"}, "who is not limited, or has the burst, is done first")


def test_not_counted_twice(check):
    """A weir_limit of the same key, in the same zone, with a bucket of the same period."""
    limit = 'weir_limit key=$arg_k zone=z "token-bucket 5/s burst 1000";'
    with Nginx(ZONE, location("/", limit, limit="token-bucket 1m/s burst 4m"), files={"html/noise": NOISE}) as nginx:
        answers = [nginx.get("/noise?k=a") for _ in range(3)]
        check.equal([it.status for it in answers], [200] * 3, "requests are not bytes")
        check(int(re.search(r"r=(\d+)", answers[2].fields["ratelimit"])[1]) >= 997, f"{answers[2].fields}")


def test_many(check):
    """With many of a key, each gets smaller pieces: with the usual tenth of a second the last would wait for 90 s."""
    number = 900
    with Nginx(ZONE, location("/", limit="token-bucket 100k/s burst 10k"), files={"html/noise": NOISE}, connections=4000,
               main="worker_rlimit_nofile 4096;") as nginx:
        meter = Meter(100000, 10000, number)
        connections = [connect(nginx.port) for _ in range(number)]
        for it in connections:
            it.sendall(get("/noise?k=a"))
        came = [len(it.recv(100)) for it in connections]
        check.equal(came, [100] * number, "everyone gets something")
        check(meter.seconds < 60, f"the last one waited for {meter.seconds:.1f} s")
        for it in connections:
            it.close()


def test_small(check):
    """Pieces smaller than sendfile's."""
    server = "sendfile on;\n" + location("/", limit="token-bucket 20k/s burst 4k")
    with Nginx(ZONE, server, files={"html/some": NOISE[:50000]}) as nginx:
        meter = Meter(20000, 4000)
        check(download(nginx, "/some?k=a", meter)[1] == NOISE[:50000], "it is whole")
        meter.check(check, "small pieces")
        meter.check_speed(check, "small pieces")


# ---- who leaves, who stays ----

def active(nginx):
    return int(re.search(r"Active connections: (\d+)", nginx.get("/status").text)[1])


def writing(nginx):
    return int(re.search(r"Writing: (\d+)", nginx.get("/status").text)[1])


def test_small_burst(check):
    """A burst that flows in less than a millisecond loses no bandwidth, and is kept all the same. The machine may be busy: it
    is enough that one of many downloads is fast, which none was that lost a third to the timers."""
    body = NOISE * 3
    ideal = (len(body) - 4000) / 10e6
    with Backend(lambda head: Backend.answer(body=body)) as backend:
        server = f"""
            location /file {{ weir_rate key=$arg_k zone=z "token-bucket 10m/s burst 4k"; root {{folder}}/html; }}
            location /proxy {{ weir_rate key=$arg_k zone=z "token-bucket 10m/s burst 4k"; proxy_pass http://127.0.0.1:{backend.port}; }}"""
        with Nginx(ZONE, server, files={"html/file": body}) as nginx:
            for path in ("/file", "/proxy"):
                best = 99
                for i in range(200):
                    meter = Meter(10_000_000, 4000)
                    head, got = download(nginx, f"{path}?k={i}", meter)
                    check(got == body, f"{path}: the body is whole")
                    meter.check(check, f"{path}, small burst")
                    best = min(best, meter.seconds)
                    if best < ideal * 1.25:
                        break
                check(best < ideal * 1.25, f"{path}: {len(body)} bytes took {best:.3f} s at best, not {ideal:.3f}")


def aborted(check, limit, size):
    """150 responses whose clients leave; then the next one must not wait for what they did not get."""
    server = location("/", limit=limit) + "location /status { stub_status; }"
    with Nginx(ZONE, server, files={"html/noise": NOISE, "html/small": b"x" * size}) as nginx:
        connections = [connect(nginx.port) for _ in range(150)]
        for it in connections:
            it.sendall(get("/noise?k=a"))
        check(nginx.wait_for(lambda: writing(nginx) > 150), "all are being answered")
        for it in connections:
            it.close()
        check(nginx.wait_for(lambda: active(nginx) == 1), "all have left")
        start = time.monotonic()
        check.equal(nginx.get("/small?k=a").body, b"x" * size, "the next one gets its answer")
        check(time.monotonic() - start < 60, f"the next one waited for {time.monotonic() - start:.1f} s")


def test_small_burst_abort(check):
    """What was paid for ahead is given back: otherwise the next one would wait for 150 s and more."""
    aborted(check, "token-bucket 1k/s burst 10", 100)


def test_upgraded(check):
    """What a WebSocket sends down is limited like any answer, over TLS, too; what clients send up is not."""
    payload = NOISE[:800_000]
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n"
    with tempfile.TemporaryDirectory() as folder, Backend(lambda _: head + payload) as backend:
        make_certificates(folder)
        proxy = f"proxy_pass http://127.0.0.1:{backend.port}; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;"
        server = f"""listen 127.0.0.1:{{port2}} ssl; ssl_certificate {folder}/server.crt; ssl_certificate_key {folder}/server.key;
            location /limited {{ {proxy} weir_rate key=$arg_k zone=z "{LIMIT}"; }}
            location /free {{ {proxy} }}"""
        with Nginx(ZONE, server) as nginx:
            for path, port, tls in (("/limited?k=a", "port", False), ("/limited?k=b", "port2", True), ("/free", "port", False)):
                meter = Meter()
                with connect(nginx.port_of(port), tls) as connection:
                    connection.sendall(get(path, {"upgrade": "echo", "connection": "upgrade"}))
                    got = b""
                    while len(got.partition(b"\r\n\r\n")[2]) < len(payload):
                        part = connection.recv(1 << 16)
                        if not part:
                            break
                        meter.note(len(part))
                        got += part
                check(got.startswith(b"HTTP/1.1 101 "), f"{path}: upgraded")
                check(got.partition(b"\r\n\r\n")[2] == payload, f"{path}: all came, in order")
                if "limited" in path:
                    meter.check(check, f"{path} {port}")
                    meter.check_speed(check, path)
            with connect(nginx.port) as connection:  # leaves while it waits
                connection.sendall(get("/limited?k=a", {"upgrade": "echo", "connection": "upgrade"}))
                connection.recv(10)


def test_abort(check):
    """What was reserved for those that left is there for the next one: otherwise it would wait for 140 s and more."""
    aborted(check, "token-bucket 1k/s burst 1k", 100)


def test_abort_burst(check):
    """Who leaves in the middle of the burst is charged what was sent."""
    big = NOISE * 24
    server = ("sendfile on;\n" + location("/", "sendfile_max_chunk 128k;", limit="token-bucket 1k/h burst 24m") +
              "location /status { stub_status; }")
    with Nginx(ZONE, server, files={"html/big": big, "html/noise": NOISE}) as nginx:
        with connect(nginx.port) as connection:
            connection.sendall(get("/big?k=a"))
            check(connection.recv(1000), "it has begun")
        check(nginx.wait_for(lambda: active(nginx) == 1), "it has left")
        check.equal(download(nginx, "/noise?k=a")[1], NOISE, "the rest of the burst is there")


def test_keepalive(check):
    """The next request of a connection is sent as its own location says."""
    server = location("/slow/", "alias {folder}/html/;", limit="token-bucket 100k/s burst 100k")
    with Nginx(ZONE, server, files={"html/noise": NOISE, "html/part": NOISE[:200000]}) as nginx:
        with nginx.client() as client:
            for turn in range(2):
                start = clocks.now()
                check.equal(client.get("/slow/part?k=a").body, NOISE[:200000], "limited")
                check(clocks.now() - start > 0.9, f"limited: {clocks.now() - start:.1f} s")
                start = time.monotonic()
                for _ in range(20):
                    check.equal(client.get("/noise").body, NOISE, "not limited")
                check(time.monotonic() - start < 60, f"not limited: {time.monotonic() - start:.1f} s, not 200")
            answers = client.pipeline([get(path) for path in ("/slow/part?k=b", "/noise", "/slow/part?k=c", "/noise")])
            check.equal([len(it.body) for it in answers], [200000, len(NOISE)] * 2, "pipelined")


def test_slow_reader(check):
    """The client reads nothing for a while: nginx waits for it as ever, and afterwards for us."""
    server = ("listen 127.0.0.1:{port2} sndbuf=64k;\n" +
              location("/", "send_timeout 47s;", limit="token-bucket 1m/s burst 3m"))
    with Nginx(ZONE, server, log="debug", files={"html/big": NOISE * 4}) as nginx:
        with connect(nginx.port_of("port2")) as connection:
            meter = Meter(1000000, 3000000)
            connection.sendall(get("/big?k=a", {"connection": "close"}))
            check(nginx.wait_for(lambda: re.search(r"timer add: \d+: 47000:", nginx.errors())), "nginx waits for it")
            check(receive(connection, meter).endswith(NOISE * 4), "all comes in the end")
            meter.check_speed(check, "all comes in the end")
    with Nginx(ZONE, location("/", "send_timeout 1s;"), files={"html/big": NOISE * 8}) as nginx:
        with connect(nginx.port) as connection:
            connection.sendall(get("/big?k=a", {"connection": "close"}))
            check(nginx.wait_for(lambda: "client timed out" in nginx.errors()), "who reads nothing is timed out")


def test_send_timeout(check):
    """Our own delays, each of over a second, are not the client's fault."""
    proxied = "proxy_pass http://127.0.0.1:{port2}/;"
    limit = "token-bucket 2k/s burst 3k"
    server = ("send_timeout 300ms;\n" + location("/", limit=limit) + location("/p/", proxied, limit=limit) +
              location("/u/", proxied + "proxy_buffering off;", limit=limit))
    http = ZONE + "server { listen 127.0.0.1:{port2}; }"
    with Nginx(http, server, files={"html/some": NOISE[:6000]}) as nginx:
        def one(path):
            meter = Meter(2000, 3000)
            body = download(nginx, path, meter)[1]
            meter.check(check, path)
            return body
        paths = [f"{where}some?k={where}" for where in ("/", "/p/", "/u/")] + ["/some?k=2"] * 3
        for path, body in zip(paths, parallel([lambda path=path: one(path) for path in paths])):
            check(body == NOISE[:6000], f"{path}: {len(body)} bytes came")


def test_reload(check):
    """A response that is under way goes on, and the bucket is the same for the new workers."""
    with Nginx(ZONE, location("/"), files={"html/noise": NOISE}) as nginx:
        meter = Meter(connections=2)
        with connect(nginx.port) as old:
            old.sendall(get("/noise?k=a", {"connection": "close"}))
            start = old.recv(1000)
            meter.note(len(start))
            check(nginx.reload(wait=False), "it reloads")
            bodies = parallel([lambda: receive(old, meter), lambda: download(nginx, "/noise?k=a", meter)[1]])
            check((start + bodies[0]).endswith(NOISE), "the old one's is whole")
            check(bodies[1] == NOISE, "the new one's is whole")
        meter.check(check, "over a reload")


# ---- ways of sending ----

def test_proxy(check):
    proxied = "proxy_pass http://127.0.0.1:{port2}/;"
    few = "proxy_buffers 4 4k; proxy_busy_buffers_size 8k; proxy_max_temp_file_size 0;"
    server = (location("/p/", proxied) + location("/u/", proxied + "proxy_buffering off;") +
              location("/few/", proxied + few) +
              location("/c/", proxied + "proxy_cache c; proxy_cache_valid 200 1m; proxy_cache_key $uri;") +
              location("/rated/", proxied + "proxy_limit_rate 10m;"))
    http = ZONE + "proxy_cache_path {folder}/cache keys_zone=c:1m; server { listen 127.0.0.1:{port2}; }"
    with Nginx(http, server, files={"html/noise": NOISE}) as nginx:
        for i, where in enumerate(("/p/", "/u/", "/few/", "/c/", "/c/", "/rated/")):
            check_one(check, nginx, f"{where}noise?k={i}", f"{where} {i}")


def test_chunked(check):
    """A backend that does not say how much will come, in pieces."""
    def answer(head):
        parts = [NOISE[at:at + 10000] for at in range(0, len(NOISE), 10000)]
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    with Backend(answer) as backend:
        proxied = f"proxy_pass http://127.0.0.1:{backend.port}; proxy_http_version 1.1;"
        with Nginx(ZONE, location("/p", proxied) + location("/u", proxied + "proxy_buffering off;")) as nginx:
            for path in ("/p?k=p", "/u?k=u"):
                meter = Meter()
                with nginx.client() as client:
                    check(client.get(path).body == NOISE, f"{path} is whole")
                check(meter.seconds > (len(NOISE) - BURST) / RATE, f"{path}: {meter.seconds:.1f} s")


def test_filters(check):
    """gzip, ranges, SSI with files and proxied parts, additions."""
    text = b"".join(b"%d %s\n" % (i, hashlib.md5(b"%d" % i).hexdigest().encode()) for i in range(30000))
    page = " - ".join(f"<!--#include virtual='{path}' -->" for path in ("/sub/one", "/proxied/two", "/sub/three"))
    added = "add_before_body /sub/one; add_after_body /proxied/two; addition_types *;"
    server = ("gzip_types *;\n" + location("/g/", "alias {folder}/html/; gzip on;") +
              location("/", "ssi on; ssi_types *;") + location("/add/", "alias {folder}/html/;" + added) +
              "location /sub/ { alias {folder}/html/; }\n"
              "location /proxied/ { proxy_pass http://127.0.0.1:{port2}/; }\n")
    third = len(NOISE) // 3
    one, two, three = NOISE[:third], NOISE[third:2 * third], NOISE[2 * third:]
    files = {"noise": NOISE, "text": text, "page": page, "one": one, "two": two, "three": three}
    files = {f"html/{name}": what for name, what in files.items()}
    with Nginx(ZONE + "server { listen 127.0.0.1:{port2}; }", server, files=files) as nginx:
        meter = Meter()
        with nginx.client() as client:
            answer = client.get("/g/text?k=g", {"accept-encoding": "gzip"})
        check.equal(answer.fields.get("content-encoding"), "gzip", "gzip")
        check(gzip.decompress(answer.body) == text, "gzip: the body is whole")
        check(meter.seconds > (len(answer.body) - BURST) / RATE, f"gzip: compressed bytes count, {meter.seconds:.1f} s")
        head, body = download(nginx, "/g/noise?k=r", fields={"range": "bytes=1000-300999"})
        check(head.startswith("HTTP/1.1 206") and body == NOISE[1000:301000], "a range")
        for path, wanted in (("/page?k=s", b" - ".join((one, two, three))), ("/add/three?k=a", one + three + two)):
            meter = Meter()
            with nginx.client() as client:
                check(client.get(path).body == wanted, f"{path} is whole")
            check(meter.seconds > (len(NOISE) - BURST) / RATE, f"{path}: parts count, {meter.seconds:.1f} s")


def test_nothing_to_send(check):
    """Heads alone are free, bodies are not."""
    server = location("/", limit="token-bucket 1/h burst 1") + "location /status { stub_status; }"
    with Nginx(ZONE, server, files={"html/noise": NOISE, "html/empty": b""}) as nginx:
        with nginx.client() as client:
            answer = client.get("/noise?k=a", method="HEAD")
            check.equal((answer.status, answer.fields["content-length"]), (200, str(len(NOISE))), "HEAD")
            check.equal(client.get("/noise?k=a", {"if-none-match": answer.fields["etag"]}).status, 304, "304")
        with connect(nginx.port) as client:
            client.sendall(get("/noise?k=a"))
            check(nginx.wait_for(lambda: writing(nginx) == 2), "a body waits")
    with Nginx(ZONE, location("/", limit="token-bucket 1k/h burst 1k"), files={"html/empty": b""}) as nginx:
        check.equal(nginx.get("/empty?k=b").body, b"", "an empty body")


def test_limit_rate(check):
    """nginx's own limit a response, and ours a key."""
    server = (location("/", "limit_rate 300k; limit_rate_after 50k;") +
              location("/less", "alias {folder}/html/noise; limit_rate 10m;"))
    with Nginx(ZONE, server, files={"html/noise": NOISE}) as nginx:
        for path in ("/noise?k=a", "/less?k=b"):
            check_one(check, nginx, path, path)
        meter = Meter(connections=3)
        bodies = parallel([lambda: download(nginx, "/noise?k=c", meter)[1] for _ in range(3)])
        check(all(body == NOISE for body in bodies), "three together are whole")
        meter.check(check, "three together")


def test_aio(check):
    """sendfile in threads, and reading in threads."""
    server = ("aio threads;\n" + location("/", "sendfile on;") +
              location("/read/", "alias {folder}/html/; sendfile off; directio 4k;"))
    with Nginx(ZONE, server, files={"html/noise": NOISE}) as nginx:
        check_one(check, nginx, "/noise?k=a", "sendfile in threads")
        check_one(check, nginx, "/read/noise?k=b", "read in threads")
        meter = Meter(connections=4)
        bodies = parallel([lambda: download(nginx, "/noise?k=c", meter)[1] for _ in range(4)])
        check(all(body == NOISE for body in bodies), "four together are whole")
        meter.check(check, "four together")


# ---- TLS and HTTP/2 ----

def test_tls(check):
    with tempfile.TemporaryDirectory(prefix="weir-tls-") as folder:
        make_certificates(folder)
        server = (f"listen 127.0.0.1:{{port2}} ssl http2; ssl_certificate {folder}/server.crt; "
                  f"ssl_certificate_key {folder}/server.key;\n" + location("/") +
                  location("/p/", "proxy_pass http://127.0.0.1:{port3}/; proxy_buffering off;"))
        http = ZONE + "server { listen 127.0.0.1:{port3}; }"
        with Nginx(http, server, files={"html/noise": NOISE}) as nginx:
            check_one(check, nginx, "/noise?k=a", "TLS", port="port2", tls=True)
            check_one(check, nginx, "/p/noise?k=b", "TLS, unbuffered", port="port2", tls=True)
            meter = Meter()
            url = f"https://127.0.0.1:{nginx.port_of('port2')}/noise?k=c"
            done = subprocess.run(["curl", "-sk", "--http2", "-w", "%{stderr}%{http_version}", url],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=True)
            check(done.stdout == NOISE, "HTTP/2 over TLS: the body is whole")
            check(meter.seconds > (len(NOISE) - BURST) / RATE, f"HTTP/2 over TLS: {meter.seconds:.2f} s")
            check.equal(done.stderr, b"2", "HTTP/2 over TLS")
            meter.note(len(NOISE))
            meter.check_speed(check, "HTTP/2 over TLS")


def streams(port, paths, meter=None, window=(1 << 31) - 1):
    """The bodies of these requests over one connection of HTTP/2, and in which order they ended."""
    bodies, order = {}, []
    with h2_frames.Peer(port, (4, min(window, 1 << 20))) as peer:
        peer.send(h2_frames.window_update(0, (1 << 31) - 1 - 65535))
        for i, path in enumerate(paths):
            bodies[2 * i + 1] = []
            peer.send(h2_frames.headers(2 * i + 1, h2_frames.request(path, authority="localhost")))
        while len(order) < len(paths):
            frame = peer.next()
            if frame is None:
                raise ConnectionError("nginx closed the connection")
            if frame.kind == h2_frames.DATA:
                bodies[frame.stream].append(frame.payload)
                if meter and frame.stream in meter.streams:
                    meter.note(len(frame.payload))
                if frame.payload:
                    peer.send(h2_frames.window_update(frame.stream, len(frame.payload)))
            if frame.kind in (h2_frames.DATA, h2_frames.HEADERS) and frame.flags & h2_frames.END_STREAM:
                order.append((frame.stream - 1) // 2)
    return [b"".join(parts) for parts in bodies.values()], order


def test_h2(check):
    server = (location("/") + location("/p/", "proxy_pass http://127.0.0.1:{port2}/; proxy_buffering off;") +
              "location /fast/ { alias {folder}/html/; }")
    http = ZONE + "server { listen 127.0.0.1:{port2}; }"
    with Nginx(http, server, listen="http2", files={"html/noise": NOISE}) as nginx:
        meter = Meter()
        meter.streams = {1, 3, 5}
        bodies, order = streams(nginx.port, ["/noise?k=a"] * 2 + ["/p/noise?k=a", "/fast/noise"], meter)
        check(all(body == NOISE for body in bodies), f"four streams are whole: {[len(body) for body in bodies]}")
        meter.check(check, "three streams of one key")
        meter.check_speed(check, "three streams of one key")
        check.equal(order[0], 3, "one without a limit is not held up by them")
        meter = Meter()
        meter.streams = {1}
        bodies, _ = streams(nginx.port, ["/noise?k=b"], meter, window=5000)
        check(bodies[0] == NOISE, "with a small window")
        meter.check(check, "with a small window")


def test_h2_reset(check):
    """A stream that is reset gives back what it reserved; the others of its connection go on."""
    server = location("/", limit="token-bucket 1k/s burst 1k")
    with Nginx(ZONE, server, listen="http2", files={"html/noise": NOISE, "html/small": b"x" * 100}) as nginx:
        with h2_frames.Peer(nginx.port) as peer:
            for stream in range(1, 241, 2):
                peer.send(h2_frames.headers(stream, h2_frames.request("/noise?k=a")))
            check(peer.until(lambda it: it.kind == h2_frames.DATA), "it has begun")
            peer.send(h2_frames.frame(h2_frames.PING, 0, 0, b"12345678"))
            check(peer.until(lambda it: it.kind == h2_frames.PING), "all were read")
            for stream in range(1, 241, 2):
                peer.send(h2_frames.reset(stream))
            start = time.monotonic()
            peer.send(h2_frames.headers(241, h2_frames.request("/small?k=a")))
            last = peer.until(lambda it: it.stream == 241 and it.kind == h2_frames.DATA and it.flags & 1)
            check(last is not None, "another stream gets its answer")
            check(time.monotonic() - start < 60, f"another stream waited for {time.monotonic() - start:.1f} s, not 120")


# ---- the directive ----

def test_texts(check):
    """Limits from variables: read for every response; without one, or where it cannot be read, there is none."""
    texts = (f'a "{LIMIT}"; b "token-bucket 1m/s burst"; c "fixed-window 1/d"; '
             'd "token-bucket 1/d, fixed-window 1/d"; default "";')
    with Nginx(f"{ZONE} map $arg_l $l {{ {texts} }}", location("/", limit="$l"), files={"html/noise": NOISE}) as nginx:
        check_one(check, nginx, "/noise?k=a&l=a", "from a map")
        for text in "bcd-":
            start = time.monotonic()
            check.equal(download(nginx, f"/noise?k={text}&l={text}")[1], NOISE, f"limit {text}")
            check(time.monotonic() - start < 60, f"limit {text} is none")
        log = nginx.errors()
        check(re.search(r'"token-bucket 1m/s burst".*column \d+: .*server.conf:1', log), "the other is told, and where")
        check.equal(log.count("weir_rate needs one token-bucket"), 2, "those that are of another kind are told")


def test_configuration(check):
    wrong = [("leaky-bucket 1m/s burst 1m", 'bandwidth cannot be limited by "leaky-bucket'),
             ("token-bucket 1m/s, fixed-window 1g/d", "write one token-bucket of bytes"),
             ("concurrent 3", "write one token-bucket of bytes"),
             ("token-bucket 1m", "weir_rate: ")]
    for limit, message in wrong:
        code, said = Nginx.check(ZONE, location("/", limit=limit))
        check.equal(code, 1, f"{limit} is refused")
        check.contains(said, message, limit)
        check.contains(said, "server.conf:1", limit)
    for text, message in (('weir_rate zone=z "token-bucket 1/s";', "key="),
                          ('weir_rate key=a "token-bucket 1/s";', "zone="),
                          ("weir_rate key=a zone=z;", "limit is missing"), ("weir_rate off; weir_rate off;", "twice"),
                          ('weir_rate key=a zone=z cost=3 "token-bucket 1/s";', "cost=")):
        code, said = Nginx.check(ZONE, text)
        check.equal(code, 1, f"{text} is refused")
        check.contains(said, message, text)


def test_inheritance(check):
    server = (f'weir_rate key=$http_x_k zone=z "{LIMIT}";\n'
              "location /off/ { weir_rate off; alias {folder}/html/; }\n"
              "location /error/ { error_page 404 /noise; }\nlocation /try/ { try_files /nothing /noise; }\n")
    with Nginx(ZONE, server, files={"html/noise": NOISE}) as nginx:
        check_one(check, nginx, "/noise", "inherited", fields={"x-k": "a"})
        start = time.monotonic()
        for _ in range(200):
            check(download(nginx, "/off/noise", fields={"x-k": "a"})[1] == NOISE, "off")
        check(time.monotonic() - start < 60, f"off: {time.monotonic() - start:.1f} s, not 200")
        for path in ("/error/", "/try/"):
            meter = Meter()
            check(download(nginx, path, meter, fields={"x-k": path})[1] == NOISE, f"{path}: the body is whole")
            meter.check(check, f"{path}: an internal redirect is limited, too")


def test_clock(check):
    """Under weir_test_clock nothing waits."""
    server = "weir_test_clock $arg_t;\n" + location("/", limit="token-bucket 1/d burst 1k")
    with Nginx(ZONE, server, files={"html/part": NOISE[:50000]}) as nginx:
        check.equal(nginx.get("/part?k=a&t=1700000000000000").body, NOISE[:50000], "at once")


if __name__ == "__main__":
    sys.exit(checks.run([it for name, it in list(globals().items()) if name.startswith("test_")], sys.argv[1:]))
