"""Plays steps against a server over real sockets and holds every answer against what was asked.

What an answer must be (`want`):

    limit N [REMAINING [settle K]]    a decision under a limit whose count is N; each question has an N of its own, so
                            an answer to another question cannot pass. REMAINING: of a key that nobody else has.
                            settle: the receipt must settle "fixed-window N/d" of the key zK, later
    key TEXT                a decision with a row whose key ends in TEXT}
    text TEXT               a body, or a RESP reply, with TEXT in it
    status N                an HTTP answer with that status
    refused                 anything but a decision: the token is missing
    head N                  the same to a HEAD, which has no body
    int | ok | any          RESP: a number, +OK; anything that is an answer
    gone                    HTTP/2: perhaps none, since the client reset the stream

503 (and RESP's words for it) is always allowed: it says that nothing was decided. Every other one is a finding, and so is a
connection that ends before all is answered, unless it was told to be loose.
"""
import collections
import re
import selectors
import socket
import struct
import time

import answers

OVERLOAD = re.compile(r"too (much|many)|max number of clients|could be reached|busy|no room|not ready|out of reach|try again|overload|LOADING|later",
                      re.I)
ANSWER_SECONDS = 60.0  # however busy the machine is
LOOSE_SECONDS = 5.0    # of a client that may be sent away: held answers of its pipeline may take an hour in all
READ_BYTES = 1 << 18


class Finding(Exception):
    """Something that must not be."""


class Frames:
    """Whether what was sent over HTTP/2 ends with a whole frame, so that an answer to the server fits in."""

    def __init__(self):
        self.left = bytearray()
        self.skip = 24  # the preface

    def feed(self, data):
        self.left += data
        while True:
            size = min(self.skip, len(self.left))
            del self.left[:size]
            self.skip -= size
            if self.skip or len(self.left) < 9:
                break
            self.skip = 9 + int.from_bytes(self.left[:3], "big")

    def whole(self):
        return not self.left and not self.skip


class Connection:
    def __init__(self, number, kind, sock, reading):
        self.number, self.sock, self.reading = number, sock, reading
        self.out = bytearray()
        self.wants = collections.deque()   # in order; of HTTP/2 by stream
        self.streams = {}
        self.asked, self.heads, self.gone = 0, set(), set()
        self.parser, self.frames = None, Frames()
        self.first, self.last = bytearray(), b""
        self.loose = self.unread = self.half = self.over = self.half_wanted = False
        self.born = self.moved = time.monotonic()
        self.done_sending = False
        self.kind = kind

    def due(self):
        return len(self.wants) + len(self.streams)


class Player:
    def __init__(self, world):
        self.world = world
        self.selector = selectors.DefaultSelector()
        self.live = {}
        self.counts = collections.Counter()
        self.receipts = collections.deque(maxlen=200)

    # ---- steps ----

    def step(self, step):
        verb = step.verb
        if verb == "pause":
            self.wait(int(step.words[0]) / 1000)
        elif verb == "store":
            self.world.store(*step.words)
        elif verb == "reload":
            self.world.reload()
        elif verb == "open":
            self.open(step.conn, *step.words)
        else:
            conn = self.live.get(step.conn)
            if conn is not None:
                getattr(self, "do_" + verb)(conn, *step.words)
        self.poll(0)

    def open(self, number, kind, buffer=None):
        family, address = self.world.address(kind)
        sock = socket.socket(family)
        if buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(buffer))
        sock.settimeout(ANSWER_SECONDS)
        try:
            sock.connect(address)
        except OSError as error:
            sock.close()
            self.counts["not connected"] += 1
            if not self.world.may_refuse:
                raise Finding(f"connection {number} is refused: {error}") from None
            return
        sock.setblocking(False)
        conn = Connection(number, kind, sock, buffer is None)
        self.live[number] = conn
        self.selector.register(sock, selectors.EVENT_READ if conn.reading else 0 or selectors.EVENT_WRITE, conn)
        self.watch(conn)
        self.counts["connections"] += 1

    def watch(self, conn):
        events = (selectors.EVENT_READ if conn.reading else 0) | (selectors.EVENT_WRITE if conn.out else 0)
        try:
            known = self.selector.get_key(conn.sock)
        except KeyError:
            known = None
        if events == 0:
            if known:
                self.selector.unregister(conn.sock)
        elif known is None:
            self.selector.register(conn.sock, events, conn)
        elif known.events != events:
            self.selector.modify(conn.sock, events, conn)

    def do_send(self, conn, data):
        if conn.parser is None and len(conn.first) < 24:
            conn.first += data[:24]
        conn.out += data
        if conn.first.startswith(b"PRI"):
            conn.frames.feed(data)
            self.reply(conn)
        conn.unread = conn.unread or conn.loose and b"HEAD" in conn.last + data  # which answers have a body, who knows
        conn.last = data[-3:]
        self.flush(conn)

    def do_want(self, conn, *words):
        self.counts["questions"] += 1
        if words[0].startswith("/"):
            stream = int(words[0][1:])
            if words[1] == "gone":
                conn.gone.add(stream)
            else:
                conn.streams[stream] = tuple(map(str, words[1:]))
        else:
            if words[0] == "head":
                conn.heads.add(conn.asked)
            conn.asked += 1
            conn.wants.append(tuple(map(str, words)))

    def do_loose(self, conn):
        conn.loose = True

    def do_read(self, conn):
        conn.reading = True
        self.watch(conn)

    def do_stop(self, conn):
        conn.reading = False
        self.watch(conn)

    def do_half(self, conn):
        conn.half_wanted = True
        self.flush(conn)

    def do_reset(self, conn):
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.drop(conn)

    def do_close(self, conn):
        self.drop(conn)

    def drop(self, conn):
        conn.over = True
        try:
            self.selector.unregister(conn.sock)
        except KeyError:
            pass
        conn.sock.close()
        self.live.pop(conn.number, None)

    # ---- bytes ----

    def flush(self, conn):
        try:
            while conn.out:
                del conn.out[:conn.sock.send(conn.out[:READ_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            conn.out.clear()
        if conn.half_wanted and not conn.out and not conn.half:
            conn.half = True
            try:
                conn.sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        if not conn.over:
            self.watch(conn)

    def poll(self, seconds):
        for key, events in self.selector.select(seconds):
            conn = key.data
            if conn.over:
                continue
            if events & selectors.EVENT_WRITE:
                self.flush(conn)
            if events & selectors.EVENT_READ and not conn.over:
                self.take_in(conn)

    def take_in(self, conn):
        try:
            data = conn.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.ended(conn)
            return
        conn.moved = time.monotonic()
        if conn.unread:
            return
        if conn.parser is None:
            conn.parser = self.parser_of(bytes(conn.first), data)
            conn.parser.heads = conn.heads
        try:
            found = conn.parser.feed(data)
        except (answers.Malformed, ValueError) as error:
            raise Finding(f"connection {conn.number}: {error}") from None
        for stream, answer in found:
            self.answered(conn, stream, answer)
        if self.reply(conn):
            self.flush(conn)

    @staticmethod
    def reply(conn):
        """Acknowledgements and room for more answers, between two frames."""
        if not isinstance(conn.parser, answers.Http2) or not conn.parser.replies or not conn.frames.whole():
            return False
        conn.out += conn.parser.replies
        conn.parser.replies.clear()
        return True

    @staticmethod
    def parser_of(first, data):
        if first.startswith(b"PRI * HTTP/2.0") and not data.startswith(b"HTTP/1.1 "):
            return answers.Http2()
        return answers.Http() if data.startswith(b"HTTP/1.1 "[:len(data)]) else answers.Resp()

    def ended(self, conn):
        due, conn_wants = conn.due(), list(conn.wants) or list(conn.streams.items())
        goaway = getattr(conn.parser, "ended", None)
        self.drop(conn)
        if due and not conn.loose and not self.world.may_refuse:  # beyond the bound only probes are answered
            raise Finding(f"connection {conn.number} was ended with {due} answers due, the first of them {conn_wants[0]}"
                          f"{f', GOAWAY {goaway}' if goaway else ''}")

    # ---- answers ----

    def answered(self, conn, stream, answer):
        if isinstance(conn.parser, answers.Http2):
            wanted = conn.streams.pop(stream, None)
            if wanted is None:
                if not conn.loose and stream not in conn.gone:
                    raise Finding(f"connection {conn.number}: stream {stream} is answered twice or unasked: {answer!r:.200}")
                return
        elif conn.wants:
            wanted = conn.wants.popleft()
        elif conn.loose:
            return
        else:
            raise Finding(f"connection {conn.number}: an answer to no question: {answer!r:.200}")
        self.counts["answers"] += 1
        if isinstance(answer, tuple):
            wrong = self.wrong_http(conn, wanted, *answer)
        else:
            wrong = self.wrong_resp(conn, wanted, answer)
        if wrong:
            raise Finding(f"connection {conn.number}{f' stream {stream}' if stream else ''}: "
                          f"wanted {' '.join(wanted)}, got {wrong}")

    def wrong_http(self, conn, wanted, status, body):
        """What is wrong with an answer, None: nothing."""
        if status is None and body is None:
            return None if conn.loose or wanted[0] == "any" else "a stream that was reset"
        value = answers.parsed(body)
        told = value.get("status") if isinstance(value, dict) else None
        if status is None:
            status = told or 200
        if status == 503:
            self.counts["503"] += 1
            conn.loose = conn.loose or self.world.may_refuse  # it may be sent away with these words
            return None
        told_all = f"{status} {body[:300]}"
        if status >= 500 and wanted[0] not in ("status", "head"):
            return told_all
        if wanted[0] == "limit":
            if not isinstance(value, dict) or value.get("limit") != int(wanted[1]):
                return told_all
            if len(wanted) > 2 and not value.get("degraded") and value.get("remaining") != int(wanted[2]):
                return told_all
            if "settle" in wanted and value.get("receipt") and not value.get("degraded"):
                self.receipts.append((wanted[1], wanted[4], value["receipt"]))
        elif wanted[0] == "key":
            rows = value.get("limits", []) if isinstance(value, dict) else []
            if not any(str(row.get("key", "")).endswith(wanted[1] + "}") for row in rows):
                return told_all
        elif wanted[0] == "refused" and b'"allowed":' in body:
            return told_all
        elif wanted[0] == "text" and wanted[1].encode() not in body:
            return told_all
        elif wanted[0] in ("status", "head") and int(wanted[1]) != status:
            return told_all
        return None

    def wrong_resp(self, conn, wanted, answer):
        if isinstance(answer, RuntimeError):
            if OVERLOAD.search(str(answer)):
                self.counts["503"] += 1
                conn.loose = conn.loose or self.world.may_refuse
                return None
            if wanted[0] not in ("any", "text"):
                return f"-{answer}"
        if wanted[0] == "limit":
            if not isinstance(answer, list) or len(answer) < 5 or answer[1] != int(wanted[1]):
                return repr(answer)[:300]
            if len(wanted) > 2 and answer[2] != int(wanted[2]) and self.world.exact:
                return repr(answer)[:300]
            if "settle" in wanted and answer[0] and self.world.exact:
                self.receipts.append((wanted[1], wanted[4], answer[6].decode()))
        elif wanted[0] == "text":
            text = str(answer).encode() if isinstance(answer, RuntimeError) else answer
            if not isinstance(text, bytes) or wanted[1].encode() not in text:
                return repr(answer)[:300]
        elif wanted[0] == "int" and not isinstance(answer, int) or wanted[0] == "ok" and answer != b"OK":
            return repr(answer)[:300]
        return None

    # ---- time ----

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.selector.get_map():
                self.poll(left)
            else:
                time.sleep(left)

    def retire(self, numbers):
        """Closes those of a script's connections that are answered; how many are not yet."""
        waiting = 0
        for number in numbers:
            conn = self.live.get(number)
            if conn is None:
                continue
            now = time.monotonic()
            if (conn.reading and not conn.out and (not conn.due() or conn.loose and now - conn.moved > 0.3)
                    or conn.loose and now - conn.born > LOOSE_SECONDS):
                self.drop(conn)
                continue
            waiting += 1
            if not conn.reading or conn.out and conn.loose:
                self.do_read(conn)
            if now - conn.moved > ANSWER_SECONDS:
                raise Finding(f"connection {number}: {conn.due()} answers do not come, the first of them "
                              f"{list(conn.wants)[:1] or list(conn.streams.items())[:1]}")
        return waiting

    def finish(self):
        """Everything that is under way is answered, or was let go."""
        while self.retire(list(self.live)):
            self.poll(0.05)

    def abandon(self):
        for conn in list(self.live.values()):
            self.drop(conn)
