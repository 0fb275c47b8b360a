"""A small RESP2 and RESP3 client for tests: one connection, calls and pipelines.

    with resp.Client(port) as client:
        client.call("SET", "k", b"\\x00")              -> "OK"
        client.pipeline([("GET", "k"), ("INCR", "k")])  -> [b"\\x00", RedisError(...)]

Bulk strings are bytes, simple strings str, integers int, null None. call() raises an error reply, pipeline()
returns it in its place.
"""
import socket


class RedisError(Exception):
    """An error reply, as the server worded it."""


class Client:
    def __init__(self, port, host="127.0.0.1", timeout=60.0, protocol=2, user=None, password=None):
        self.socket = socket.create_connection((host, port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb", 1 << 16)
        if user is not None:
            self.call("AUTH", user, password)
        if protocol == 3:
            self.call("HELLO", "3")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.stream.close()
        self.socket.close()

    def call(self, *words):
        self.socket.sendall(encode(words))
        reply = self.read()
        if isinstance(reply, RedisError):
            raise reply
        return reply

    def pipeline(self, commands, batch=200):
        """The replies to all commands, at most `batch` of them under way at once."""
        replies = []
        for start in range(0, len(commands), batch):
            part = commands[start:start + batch]
            self.socket.sendall(b"".join(map(encode, part)))
            replies += [self.read() for _ in part]
        return replies

    def read(self):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return RedisError(rest.decode(errors="backslashreplace"))
        if kind == b":":
            return int(rest)
        if kind == b"_":
            return None
        if kind == b"#":
            return rest == b"t"
        if kind == b",":
            return float(rest)
        if kind in b"$=!":
            return self.read_bulk(kind, int(rest))
        if kind in b"*~>":
            return None if rest == b"-1" else [self.read() for _ in range(int(rest))]
        if kind == b"%":
            pairs = [(self.read(), self.read()) for _ in range(int(rest))]
            return {key: value for key, value in pairs}
        raise ConnectionError(f"not a reply: {line!r}")

    def read_bulk(self, kind, size):
        if size < 0:
            return None
        data = self.stream.read(size + 2)[:-2]
        if kind == b"!":
            return RedisError(data.decode(errors="backslashreplace"))
        return data[4:] if kind == b"=" else data


def encode(words):
    """One command; numbers and text become bytes."""
    out = [b"*%d\r\n" % len(words)]
    for word in words:
        if not isinstance(word, bytes):
            word = str(word).encode()
        out.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(out)
