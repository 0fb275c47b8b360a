"""What bench/nginx.py compares: rows of the same settings for weir and for nginx's own, and how they are asked.

Every row has a server on a port of its own with one location, and a zone of its own: finding the location, reading the request
and the keys others have left cost all rows the same.
"""
import dataclasses
import os
import pathlib
import re
import socket
import sys

from server.servers import SERVER_CORE, pinned

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEYS, FIRST_KEY = 100_000, 1_000_000_000
BATCH = 200  # requests at once, where they are not measured
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
PLAIN, PAGE, LIMIT_REQ, LIMIT_CONN = "empty_gif", "return 429", "limit_req", "limit_conn"
COMMON = "error_log {folder}/crit.log crit; keepalive_requests 1000000000; keepalive_timeout 1h; limit_req_status 429;\n"


@dataclasses.dataclass(frozen=True)
class Row:
    number: int
    section: str
    name: str
    text: str              # of its location
    zone: str              # declares its zone
    many: bool             # random keys; else the client's address, which is always the same
    denied: bool
    against: str = ""      # the row of nginx's own that does the same
    lasting: bool = False  # lets one more through every minute, unless far more were taken: port_more does

    @property
    def group(self):
        return self.section, self.many

    @property
    def port_name(self):
        return f"port{self.number}1"

    @property
    def port_more(self):
        return f"port{self.number}2"

    @property
    def title(self):
        return f"{'many keys' if self.many else 'one key'}, {'denied' if self.denied else 'allowed'}, {self.name}"

    @property
    def keys(self):
        return [FIRST_KEY + i for i in range(KEYS if self.many else 1)]

    def servers(self):
        made = f"server {{ listen 127.0.0.1:{{{self.port_name}}}; location / {{ {self.text} empty_gif; }} }}\n"
        if self.lasting:
            text = self.text.replace(";", " burst=100000 nodelay;")
            made += f"server {{ listen 127.0.0.1:{{{self.port_more}}}; location / {{ {text} empty_gif; }} }}\n"
        return made


def limits(section, many, denied):
    """(name, declaration of its zone, its location, what more the row says); ZONE and KEY are to be filled in."""
    rate, burst = ("1r/m", "") if denied else ("1000000r/s", " burst=100000 nodelay")
    leaky = "leaky-bucket 1/366d burst 0 nodelay" if denied else "leaky-bucket 1m/s burst 100k nodelay"
    token = "token-bucket 1/366d" if denied else "token-bucket 1m/s burst 100k"

    def weir(name, text, fields="off"):
        return (name, "weir_zone ZONE 32m;", f'weir_headers {fields}; weir_limit key=KEY zone=ZONE "{text}";',
                dict(against=LIMIT_REQ))
    yield PAGE if denied else PLAIN, "", "return 429;" if denied else "", {}
    yield (LIMIT_REQ, f"limit_req_zone KEY zone=ZONE:32m rate={rate};", f"limit_req zone=ZONE{burst};",
           dict(lasting=denied))
    yield weir("weir leaky-bucket", leaky)
    yield weir("weir token-bucket", token)
    yield weir("weir token-bucket, ietf fields", token, "ietf")
    if not denied:
        yield LIMIT_CONN, "limit_conn_zone KEY zone=ZONE:32m;", "limit_conn ZONE 1000;", {}
        yield ("weir_conn", "weir_zone ZONE 32m large=50%;", "weir_headers off; weir_conn key=KEY zone=ZONE 1000;",
               dict(against=LIMIT_CONN))


def all_rows():
    rows = []
    for section, many, denied in [("one", False, False), ("many", True, False), ("denied", False, True),
                                  ("denied", True, True)]:
        for name, zone, text, more in limits(section, many, denied):
            filled = [it.replace("ZONE", f"zone{len(rows)}").replace("KEY", "$arg_k" if many else "$binary_remote_addr")
                      for it in (text, zone)]
            rows.append(Row(len(rows), section, name, *filled, many=many, denied=denied, **more))
    return rows


# ---- asking ----

def server_module(build):
    os.environ["WEIR_BUILD"] = str(build)
    sys.path.insert(0, str(ROOT / "tests"))
    from lib import nginx_server
    return nginx_server


def start(build, http, command=(), **options):
    """An nginx with this text in http{}; {port} is that of /status and /info."""
    server = "location = /status { stub_status; } location = /info { weir_info; }"
    return server_module(build).Nginx(COMMON + http, server, command=[*pinned(SERVER_CORE, []), *command], **options)


def start_rows(build, rows, **options):
    return start(build, "\n".join(row.zone + "\n" + row.servers() for row in rows), **options)


def ask_all(nginx, port_name, keys):
    """The statuses of requests for all these keys, pipelined. Bodies have no status lines in them."""
    statuses = []
    with socket.create_connection(("127.0.0.1", nginx.port_of(port_name)), timeout=60) as stream:
        for at in range(0, len(keys), BATCH):
            asked = [f"GET /?k={key} HTTP/1.1\r\nHost: localhost\r\n\r\n" for key in keys[at:at + BATCH]]
            stream.sendall("".join(asked).encode())
            got, found = b"", []
            while len(found) < len(asked):
                data = stream.recv(1 << 18)
                if not data:
                    sys.exit("nginx closed the connection")
                got += data
                found = STATUS.findall(got)
            statuses += map(int, found)
    return statuses


def fill(nginx, row, keys):
    """Every key is known before the row is measured; where that matters, one more request is held against it."""
    if row.zone:
        ask_all(nginx, row.port_more if row.lasting else row.port_name, keys)
