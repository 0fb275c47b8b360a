"""Takes the answers of a connection apart as they come, strictly: anything that is not an answer is a finding."""
import json
import struct

SERVER_ERRORS = range(500, 600)


class Malformed(Exception):
    """Bytes that no client could read as an answer."""


class Resp:
    """RESP replies in order; an error reply is an Exception's instance."""

    def __init__(self):
        self.data, self.at = bytearray(), 0

    def feed(self, data):
        self.data += data
        out = []
        while (found := self.value(self.at)) is not None:
            value, self.at = found
            out.append((None, value))
        if self.at > 1 << 16:
            del self.data[:self.at]
            self.at = 0
        return out

    def value(self, at):
        """(value, end), None where it is not all there yet."""
        end = self.data.find(b"\r\n", at)
        if end < 0:
            if len(self.data) - at > 1 << 17:
                raise Malformed(f"a reply's line without an end: {bytes(self.data[at:at + 80])}")
            return None
        kind, line, at = self.data[at:at + 1], bytes(self.data[at + 1:end]), end + 2
        if kind == b"+":
            return line, at
        if kind == b"-":
            return RuntimeError(line.decode("latin-1")), at
        if kind == b":":
            return int(line), at
        if kind == b"_" and not line:
            return None, at
        if kind == b"$":
            size = int(line)
            if size < 0:
                return None, at
            if len(self.data) < at + size + 2:
                return None
            if self.data[at + size:at + size + 2] != b"\r\n":
                raise Malformed(f"a bulk string without its end: {bytes(self.data[at:at + 80])}")
            return bytes(self.data[at:at + size]), at + size + 2
        if kind in (b"*", b"%", b"~"):
            items = []
            for _ in range(int(line) * (2 if kind == b"%" else 1)):
                found = self.value(at)
                if found is None:
                    return None
                item, at = found
                items.append(item)
            return items, at
        raise Malformed(f"no reply begins like this: {bytes(kind) + line[:80]}")


class Http:
    """HTTP/1.1 answers in order: (status, body). heads: which of them have no body, filled by who sends."""

    def __init__(self):
        self.data, self.heads, self.count = bytearray(), set(), 0

    def feed(self, data):
        self.data += data
        out = []
        while (found := self.answer()) is not None:
            out.append((None, found))
        return out

    def answer(self):
        while True:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                if self.data and not b"HTTP/1.1 ".startswith(self.data[:9]):
                    raise Malformed(f"no answer begins like this: {bytes(self.data[:80])}")
                return None
            lines = bytes(self.data[:end]).split(b"\r\n")
            if not lines[0].startswith(b"HTTP/1.1 ") or not lines[0][9:12].isdigit():
                raise Malformed(f"no answer begins like this: {lines[0][:80]}")
            status = int(lines[0][9:12])
            if status != 100:
                break
            del self.data[:end + 4]
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
        size = 0
        if status not in (204, 304) and self.count not in self.heads:
            if not fields.get(b"content-length", b"").isdigit():
                raise Malformed(f"an answer without a length: {lines[:10]}")
            size = int(fields[b"content-length"])
        if len(self.data) < end + 4 + size:
            return None
        body = bytes(self.data[end + 4:end + 4 + size])
        del self.data[:end + 4 + size]
        self.count += 1
        return status, body


class Http2:
    """Answers by stream: (stream, (status, body)); the status is only known where one byte of HPACK tells it. A stream
    that is reset answers (stream, (None, None)). `ended`: what GOAWAY said. `replies`: what is to be sent back."""

    STATUSES = {0x88: 200, 0x89: 204, 0x8b: 304, 0x8c: 400, 0x8d: 404, 0x8e: 500}

    def __init__(self):
        self.data, self.open, self.ended, self.replies = bytearray(), {}, None, bytearray()

    def feed(self, data):
        self.data += data
        out = []
        while len(self.data) >= 9:
            size = int.from_bytes(self.data[:3], "big")
            if size > 16384:
                raise Malformed(f"a frame of {size} bytes")
            if len(self.data) < 9 + size:
                break
            kind, flags, stream = struct.unpack(">BBI", self.data[3:9])
            payload = bytes(self.data[9:9 + size])
            del self.data[:9 + size]
            out += self.frame(kind, flags, stream & 0x7fffffff, payload)
        return out

    def frame(self, kind, flags, stream, payload):
        if kind == 4 and not flags & 1:
            self.replies += b"\0\0\0\x04\x01\0\0\0\0"
        elif kind == 6 and not flags & 1:
            self.replies += b"\0\0\x08\x06\x01\0\0\0\0" + payload
        elif kind == 7:
            self.ended = payload
        elif kind == 3:
            self.open.pop(stream, None)
            return [(stream, (None, None))]
        elif kind == 1:
            status, body = self.open.get(stream, (None, b""))
            if stream not in self.open:
                status = self.status(payload)
            self.open[stream] = (status, body)
        elif kind == 0:
            if stream not in self.open:
                raise Malformed(f"data on stream {stream}, which has no head")
            status, body = self.open[stream]
            self.open[stream] = (status, body + payload)
            if payload:
                update = struct.pack(">I", len(payload))
                self.replies += b"\0\0\x04\x08\0\0\0\0\0" + update
                if not flags & 1:
                    self.replies += b"\0\0\x04\x08\0" + struct.pack(">I", stream) + update
        elif kind not in (4, 5, 6, 8, 9) and kind <= 9:
            raise Malformed(f"a frame of kind {kind}")
        if kind in (0, 1) and flags & 1:
            return [(stream, self.open.pop(stream))]
        return []

    def status(self, payload):
        while payload and payload[0] & 0xe0 == 0x20:  # a table's new size comes first
            payload = payload[1:]
        if not payload:
            return None
        if payload[0] in self.STATUSES:
            return self.STATUSES[payload[0]]
        if payload[0] & 0xf0 in (0, 0x10, 0x40) and len(payload) > 4 and payload[1] == 3:
            return int(payload[2:5]) if payload[2:5].isdigit() else None
        return None


def parsed(body):
    """A JSON answer; None: it is not JSON."""
    try:
        return json.loads(body)
    except ValueError:
        return None
