#!/usr/bin/env python3
"""weir_conn in a real nginx: slots are held while a request lives, and given back however it ends."""
import subprocess
import sys
import threading
import time

from lib import checks
from lib.nginx_server import Backend, get, serve


class Gate(Backend):
    """A backend whose answers wait until they are let through, all or one by one."""

    def __init__(self):
        self.passes = threading.Semaphore(0)
        super().__init__(self.wait)

    def wait(self, head):
        self.passes.acquire(timeout=120)
        return self.answer()

    def let(self, number=1):
        self.passes.release(number)


class Held:
    """Requests under way that have reached the backend."""

    def __init__(self, nginx, gate, paths, port="port"):
        before = len(gate.heads)
        self.clients = [nginx.client(port) for _ in paths]
        for client, path in zip(self.clients, paths):
            client.send(get(path))
        nginx.wait_for(lambda: len(gate.heads) >= before + len(paths))

    def read(self):
        return [client.read() for client in self.clients]

    def close(self):
        for client in self.clients:
            client.close()


def comes_free(nginx, path):
    """A slot that is given back a moment after its request has ended."""
    return nginx.wait_for(lambda: nginx.get(path).status == 200)


def test_slots(check):
    with Gate() as gate:
        locations = f"""
            location /slow {{ proxy_pass http://127.0.0.1:{gate.port}; weir_conn key=$arg_k zone=z 2 name=two; }}
            location /quick {{ weir_conn key=$arg_k zone=z 2; }}
            """
        with serve(locations) as nginx:
            check.equal(nginx.statuses(["/quick?k=a"] * 10), [200] * 10, "one after another")
            held = Held(nginx, gate, ["/slow?k=a"] * 2)
            answer = nginx.get("/quick?k=a")
            check.equal((answer.status, answer.weir["status"], answer.weir["limit"], answer.weir["remaining"]),
                        (429, "REJECTED", "2", "0"), "the third of two")
            check("retry-after" not in answer.fields, f"no Retry-After: nobody knows when: {answer.fields}")
            check.equal((answer.fields["ratelimit"], answer.weir["retry_after"]), ('"concurrent";r=0', ""), "no time at all")
            check(nginx.wait_for(lambda: "weir: rejected by concurrent 2, zone" in nginx.errors()), "nor in the log")
            check.equal(nginx.get("/slow?k=a").weir["binding"], "two", "its name")
            check.equal(nginx.get("/quick?k=b").status, 200, "another key")
            check.equal(nginx.get("/quick").status, 200, "no key")
            gate.let(2)
            check.equal([it.status for it in held.read()], [200, 200], "those that were held")
            check(comes_free(nginx, "/quick?k=a"), "slots are given back")
            held.close()  # they were kept alive: slots are of requests, not of connections
            held = Held(nginx, gate, ["/slow?k=a"] * 2)
            check.equal(nginx.get("/quick?k=a").status, 429, "two again")
            gate.let(2)
            held.read()
            held.close()


def test_abort(check):
    """Clients that leave."""
    with Gate() as gate:
        locations = f"""location /slow {{ proxy_pass http://127.0.0.1:{gate.port}; weir_conn key=$arg_k zone=z 3; }}
            location /quick {{ weir_conn key=$arg_k zone=z 3; }}"""
        with serve(locations) as nginx:
            for _ in range(5):
                held = Held(nginx, gate, ["/slow?k=a"] * 3)
                check.equal(nginx.get("/quick?k=a").status, 429, "all three are held")
                held.close()
                check(comes_free(nginx, "/quick?k=a"), "those who left gave them back")
            gate.let(100)


def test_other_ends(check):
    """A backend that is not there, that breaks off, that is too slow; an answer that its client does not read."""
    with Backend(lambda head: b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this") as broken, Gate() as gate:
        locations = f"""
            weir_conn key=$arg_k zone=z 1; proxy_read_timeout 100ms;
            location /nobody {{ proxy_pass http://127.0.0.1:1; }}
            location /broken {{ proxy_pass http://127.0.0.1:{broken.port}; }}
            location /late {{ proxy_pass http://127.0.0.1:{gate.port}; }}
            location /large {{ root {{folder}}/html; }}
            location /quick {{ }}
            """
        with serve(locations, files={"html/large": b"x" * 20_000_000}) as nginx:
            for path, wanted in (("/nobody", 502), ("/late", 504)):
                for _ in range(3):
                    check.equal(nginx.get(f"{path}?k=a").status, wanted, path)
                    check(comes_free(nginx, "/quick?k=a"), f"{path}: given back")
            for path in ("/broken", "/large"):
                client = nginx.client()
                client.send(get(f"{path}?k=a"))
                client.socket.recv(10)
                if path == "/large":
                    check.equal(nginx.get("/quick?k=a").status, 429, "held while it is sent")
                client.close()
                check(comes_free(nginx, "/quick?k=a"), f"{path}: given back")
            gate.let(10)


def test_reject_by_limit(check):
    """A request that a limit rejects has its slot no longer, even while its error page takes its time."""
    with Gate() as gate:
        locations = f"""
            location /slow {{ proxy_pass http://127.0.0.1:{gate.port}; weir_conn key=$arg_k zone=z 1;
                weir_limit key=$arg_k zone=z "fixed-window 1/100d"; error_page 429 @page; }}
            location @page {{ proxy_pass http://127.0.0.1:{gate.port}; }}
            location /late {{ proxy_pass http://127.0.0.1:{gate.port}; weir_conn key=$arg_k zone=z 1;
                weir_limit key=$arg_k zone=z "fixed-window 1/100d" phase=precontent; error_page 429 @page; }}
            location /quick {{ weir_conn key=$arg_k zone=z 1; }}
            """
        with serve(locations) as nginx:
            for path in ("/slow?k=a", "/late?k=b"):
                free = f"/quick?{path.partition('?')[2]}"
                gate.let()
                check.equal(nginx.get(path).status, 200, f"{path}: the first")
                check(comes_free(nginx, free), f"{path}: its slot is free")
                held = Held(nginx, gate, [path])  # its error page is under way
                check.equal(nginx.get(free).status, 200, f"{path}: the slot of a rejected one is free")
                gate.let()
                check.equal(held.read()[0].status, 429, f"{path}: rejected")
                held.close()


def test_several(check):
    """Several weir_conns: those got before one rejects are given back."""
    with Gate() as gate:
        locations = f"""
            location /slow {{ proxy_pass http://127.0.0.1:{gate.port};
                weir_conn key=$arg_a zone=z "concurrent 2 lease 30s" name=a; weir_conn key=$arg_b zone=z 1 name=b status=503; }}
            location /a {{ weir_conn key=$arg_a zone=z 2; }}
            location /dry {{ weir_conn key=$arg_a zone=z 2 dry_run name=slots; weir_limit key=dry zone=z "fixed-window 9/100d" dry_run; }}
            location /read {{ weir_limit key=dry zone=z "fixed-window 9/100d" cost=0; }}
            """
        with serve(locations) as nginx:
            held = Held(nginx, gate, ["/slow?a=x1&b=y"])
            for _ in range(5):
                answer = nginx.get("/slow?a=x1&b=y")
                check.equal((answer.status, answer.weir["binding"]), (503, "b"), "the second rejects")
            check(comes_free(nginx, "/a?a=x1"), "the first was given back")
            other = Held(nginx, gate, ["/slow?a=x1&b=z"])
            answer = nginx.get("/slow?a=x1&b=w")
            check.equal((answer.status, answer.weir["binding"]), (429, "a"), "the first rejects")
            answer = nginx.get("/dry?a=x1")
            check.equal((answer.status, answer.weir["status"], answer.weir["binding"]), (200, "DRY_RUN", "slots"), "in dry run")
            check.equal(nginx.get("/read").weir["remaining"], "9", "limits in dry run do not see what would have got no slot")
            gate.let(2)
            held.read(), other.read()
            held.close(), other.close()


def test_numbers_from_variables(check):
    """A bare number, with and without more behind it; what is not one is told."""
    with Gate() as gate:
        locations = f"""
            location /slow {{ proxy_pass http://127.0.0.1:{gate.port}; weir_conn key=$arg_k zone=z $arg_n; }}
            location /lease {{ weir_conn key=$arg_k zone=z "$arg_n lease 30s"; }}
            location /quick {{ weir_conn key=$arg_k zone=z $arg_n; }}
            """
        with serve(locations) as nginx:
            held = Held(nginx, gate, ["/slow?k=a&n=2"] * 2)
            statuses = [nginx.get(f"/{path}").status for path in (
                "quick?k=a&n=2", "quick?k=a&n=3", "lease?k=a&n=2", "lease?k=a&n=3", "quick?k=a", "quick?k=a&n=concurrent%203",
                "quick?k=a&n=2x", "quick?k=a&n=0")]
            gate.let(2)
            held.read()
            held.close()
            # arguments are not decoded: "concurrent%203" is no limit
            check.equal(statuses, [429, 200, 429, 200, 200, 500, 500, 500], "by their numbers")
            check.contains(nginx.errors(), 'the limit "concurrent 2x"', "what is wrong")


def test_off(check):
    """weir_conn off undoes what the server has; unless= exempts."""
    with Gate() as gate:
        locations = f"""
            weir_conn key=$arg_k zone=z 1 unless=$arg_free;
            location /slow {{ proxy_pass http://127.0.0.1:{gate.port}; }}
            location /quick {{ }}
            location /off {{ weir_conn off; }}
            """
        with serve(locations) as nginx:
            held = Held(nginx, gate, ["/slow?k=a"])
            statuses = [nginx.get(path).status for path in ("/quick?k=a", "/off?k=a", "/quick?k=a&free=yes", "/quick?k=a&free=0")]
            gate.let()
            held.read()
            held.close()
            check.equal(statuses, [429, 200, 200, 429], "only the first and the last")


def test_no_limit_charged(check):
    """A request without a slot is not charged."""
    with Gate() as gate:
        locations = f"""
            location /slow {{ proxy_pass http://127.0.0.1:{gate.port}; weir_conn key=$arg_k zone=z 1;
                weir_limit key=$arg_k zone=z "fixed-window 9/100d"; }}
            location /read {{ weir_limit key=$arg_k zone=z "fixed-window 9/100d" cost=0; }}
            """
        with serve(locations) as nginx:
            held = Held(nginx, gate, ["/slow?k=a"])
            check.equal(nginx.statuses(["/slow?k=a"] * 5), [429] * 5, "no slot")
            check.equal(nginx.get("/read?k=a").weir["remaining"], "8", "one was charged")
            gate.let()
            answer = held.read()[0]
            check.equal((answer.status, answer.weir["remaining"]), (200, "8"), "variables are the limit's")
            held.close()


def test_redirects(check):
    """Internal redirects and subrequests hold no second slot."""
    locations = """
        weir_conn key=$arg_k zone=z 1;
        location /dir/ { root {folder}/html; }
        location /try { root {folder}/html; try_files /nothing /dir/index.html; }
        location /page { root {folder}/html; error_page 404 /dir/index.html; }
        location /ssi { root {folder}/html; ssi on; ssi_types *; }
        """
    files = {"html/dir/index.html": "index\n",
             "html/ssi": '<!--#include virtual="/dir/index.html?k=a" --><!--#include virtual="/dir/index.html?k=a" -->'}
    with serve(locations, files=files) as nginx:
        for path, wanted in (("/dir/?k=a", "index\n"), ("/try?k=a", "index\n"), ("/page?k=a", "index\n"),
                             ("/ssi?k=a", "index\nindex\n")):
            answer = nginx.get(path)
            check.equal(answer.text, wanted, path)
            check.equal([nginx.get("/dir/index.html?k=a").status for _ in range(3)], [200] * 3, f"{path} let go")


def test_renewal(check):
    """A request that lives longer than its lease keeps its slot."""
    checks.in_time(lambda scale: renewal(check, 3 * scale))


def renewal(check, lease):
    """False: the machine held nginx up for so long that it could not renew in time."""
    conn = f'weir_conn key=$arg_k zone=z "concurrent 1 lease {lease}s";'
    with Gate() as gate:
        locations = f"""location /slow {{ proxy_pass http://127.0.0.1:{gate.port}; {conn} }}
            location /quick {{ {conn} }}"""
        with serve(locations) as nginx:
            held, start, seen = Held(nginx, gate, ["/slow?k=a"]), time.monotonic(), 0
            before = start
            while time.monotonic() < start + 2.4 * lease or seen <= 5:
                seen += 1
                status, gap, before = nginx.get("/quick?k=a").status, time.monotonic() - before, time.monotonic()
                if status != 429 and gap > lease / 4:
                    gate.let()
                    return False
                if not check.equal(status, 429, f"after {time.monotonic() - start:.3f} s"):
                    break
                time.sleep(0.1)
            gate.let()
            check(held.read()[0].status == 200 and seen > 5, f"{seen} were rejected meanwhile")
            held.close()
            check(comes_free(nginx, "/quick?k=a"), "then it is free")
    return True


def test_http2(check):
    """Streams of one connection are requests like others."""
    with Gate() as gate:
        locations = f"""location /slow {{ proxy_pass http://127.0.0.1:{gate.port}; weir_conn key=$arg_k zone=z 2; }}"""
        with serve(locations, listen="http2") as nginx:
            load = subprocess.Popen(["h2load", "-n", "5", "-c", "1", "-m", "5", nginx.url("/slow?k=a")], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
            nginx.wait_for(lambda: len(gate.heads) >= 2 and nginx.errors().count("[error]") >= 3)
            gate.let(5)
            check.contains(load.communicate(timeout=60)[0], "status codes: 2 2xx, 0 3xx, 3 4xx", "five streams for two slots")


def test_http2_abort(check):
    with Gate() as gate:
        locations = f"""location /slow {{ proxy_pass http://127.0.0.1:{gate.port}; weir_conn key=$arg_k zone=z 1; }}
            location /quick {{ weir_conn key=$arg_k zone=z 1; }}"""
        with serve(locations, listen="http2") as nginx:
            def ask(path):
                return subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_code}",
                                       nginx.url(path)], stdout=subprocess.PIPE, text=True, timeout=60).stdout
            curl = subprocess.Popen(["curl", "-sS", "--http2-prior-knowledge", nginx.url("/slow?k=b")],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            nginx.wait_for(lambda: gate.heads)
            check.equal(ask("/quick?k=b"), "429", "its slot is held")
            curl.kill()
            curl.wait()
            check(nginx.wait_for(lambda: ask("/quick?k=b") == "200"), "a client that left gave it back")
            gate.let()


TESTS = [test_slots, test_numbers_from_variables, test_off, test_abort, test_other_ends, test_reject_by_limit, test_several, test_no_limit_charged, test_redirects,
         test_renewal, test_http2, test_http2_abort]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
