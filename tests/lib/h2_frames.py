"""HTTP/2 frames by hand, for clients that do what no client library lets one do.

    with Peer(port) as peer:
        peer.send(headers(1, GET))
        peer.until(lambda frame: frame.kind == DATA)

Fields are sent as plain literals, so that no state is shared with the server; those received are not decoded, but
for the status of an answer where a single byte tells it.
"""
import collections
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 0, 1, 3, 6
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 7, 8, 9, 11
STATUSES = {0x88: 200, 0x89: 204, 0x8b: 304, 0x8c: 400, 0x8d: 404, 0x8e: 500}

Frame = collections.namedtuple("Frame", "kind flags stream payload")


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def number(value, bits, first=0):
    """An integer as HPACK has it."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out = bytearray([first | most])
    value -= most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def literal(name, value, first=0, bits=4):
    """A field with its name; by default it is not to be remembered."""
    name, value = (text if isinstance(text, bytes) else text.encode() for text in (name, value))
    return number(0, bits, first) + number(len(name), 7) + name + number(len(value), 7) + value


def block(fields):
    return b"".join(literal(name, value) for name, value in fields)


def request(path="/v1/peek?key=k&limit=token-bucket+1m/s", method="GET", authority="127.0.0.1", fields=()):
    pseudo = [(":method", method), (":scheme", "http"), (":path", path)]
    return block(pseudo + ([(":authority", authority)] if authority else []) + list(fields))


def headers(stream, payload, flags=END_STREAM | END_HEADERS):
    return frame(HEADERS, flags, stream, payload)


def settings(*entries):
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *entry) for entry in entries))


def reset(stream, error=CANCEL):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", error))


def window_update(stream, more):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", more))


class Peer:
    """A connection; by default it has said hello."""

    def __init__(self, port, *entries, hello=True, timeout=60, buffer=None):
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", port))
        self.timeout = timeout
        self.kept = b""
        self.ended = False
        if hello:
            self.send(PREFACE + settings(*entries))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """False: the server does not take it any more."""
        try:
            self.socket.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def next(self):
        """The next frame; None at the end."""
        while len(self.kept) < 9 or len(self.kept) < 9 + int.from_bytes(self.kept[:3], "big"):
            try:
                more = self.socket.recv(1 << 18)
            except ConnectionResetError:
                more = b""
            if not more:
                self.ended = True
                return None
            self.kept += more
        size = int.from_bytes(self.kept[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", self.kept[3:9])
        payload, self.kept = self.kept[9:9 + size], self.kept[9 + size:]
        return Frame(kind, flags, stream & 0x7fffffff, payload)

    def until(self, wanted):
        """The first frame for which wanted() is true; None: the end came first."""
        end = time.monotonic() + self.timeout
        while time.monotonic() < end:
            it = self.next()
            if it is None or wanted(it):
                return it
        raise TimeoutError("no such frame")

    def goaway(self):
        """Reads to the end; the error of the last GOAWAY, None: there was none."""
        error = None
        try:
            while (it := self.next()) is not None:
                if it.kind == GOAWAY:
                    error = struct.unpack(">I", it.payload[4:8])[0]
        except socket.timeout:
            return "still open"
        return error

    def answer(self, stream):
        """Status (None: not one of STATUSES), body, and the error where the stream was reset."""
        status, body = None, b""
        while (it := self.next()) is not None:
            if it.stream != stream:
                continue
            if it.kind == HEADERS and not body and it.payload:
                status = STATUSES.get(it.payload[0])
            elif it.kind == DATA:
                body += it.payload
            elif it.kind == RST_STREAM:
                return status, body, struct.unpack(">I", it.payload)[0]
            if it.flags & END_STREAM and it.kind in (HEADERS, DATA):
                return status, body, None
        return status, body, "ended"

    def ping(self, word=b"12345678"):
        """Whether the server still listens to this connection."""
        return self.send(frame(PING, 0, 0, word)) and \
            self.until(lambda it: it.kind == PING and it.flags & ACK and it.payload == word) is not None
