"""A small HTTP/1.1 client for tests: one connection, requests as bytes, pipelines, answers as they came.

    with http_client.Client(port) as client:
        answer = client.get("/v1/take", key="k", limit="token-bucket 1/s")
        answer.status, answer.fields["retry-after"], answer.json["allowed"]
        client.pipeline([http_client.post("/v1/reset", {"key": "k"}), …])

Field names are lower case; several lines of one name are joined by ", ". Times of decisions, which have six
decimals, are whole microseconds in answer.json["retry_after"]; None is never.
"""
import collections
import json
import re
import socket
import urllib.parse

SECONDS = re.compile(r"\d+\.\d{6}")


class Answer(collections.namedtuple("Answer", "version status reason fields body")):
    @property
    def json(self):
        return json.loads(self.body, parse_float=microseconds)


def microseconds(text):
    """Seconds as decisions have them, always with six decimals; other decimals are floats."""
    return int(text.replace(".", "")) if SECONDS.fullmatch(text) else float(text)


def seconds(us):
    """Microseconds as JSON's seconds, exact, without needless zeros."""
    text = f"{us // 1000000}.{us % 1000000:06d}".rstrip("0")
    return text + "0" if text.endswith(".") else text


class Number(float):
    """A number that JSON writes as it was written here: Number("1e3")."""

    def __new__(cls, text):
        self = super().__new__(cls, text)
        self.text = text
        return self

    def __repr__(self):
        return self.text


def encode(value):
    """JSON text; Numbers keep their spelling."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{encode(it)}" for name, it in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(encode, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def request(method, target, fields=None, body=None, version="HTTP/1.1"):
    """The bytes of a request; `fields` is a dict or a list of pairs, host is localhost unless given."""
    pairs = list(fields.items()) if isinstance(fields, dict) else list(fields or [])
    names = {name.lower() for name, _ in pairs}
    if "host" not in names:
        pairs.insert(0, ("host", "localhost"))
    if body is not None and not names & {"content-length", "transfer-encoding"}:
        pairs.append(("content-length", len(body)))
    lines = [f"{method} {target} {version}", *(f"{name}: {value}" for name, value in pairs), "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")


def get(path, fields=None, **query):
    """`query` is encoded; attr_NAME is attr.NAME."""
    pairs = {name.replace("attr_", "attr.", 1): value for name, value in query.items()}
    return request("GET", path + ("?" + urllib.parse.urlencode(pairs) if pairs else ""), fields)


def post(path, value=None, fields=None):
    body = value if isinstance(value, bytes) else b"" if value is None else encode(value).encode()
    return request("POST", path, {"content-type": "application/json", **(fields or {})}, body)


class Client:
    def __init__(self, port, host="127.0.0.1", timeout=60.0):
        self.socket = socket.create_connection((host, port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb", 1 << 16)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.stream.close()
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def ask(self, data, head=False):
        self.send(data)
        return self.read(head)

    def get(self, path, fields=None, **query):
        return self.ask(get(path, fields, **query))

    def post(self, path, value=None, fields=None):
        return self.ask(post(path, value, fields))

    def pipeline(self, requests, batch=100):
        """The answers to all requests, at most `batch` of them under way at once."""
        answers = []
        for start in range(0, len(requests), batch):
            part = requests[start:start + batch]
            self.send(b"".join(part))
            answers += [self.read() for _ in part]
        return answers

    def read(self, head=False):
        """One answer; `head`: to a HEAD, which has no body."""
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError(f"the server closed the connection: {line!r}")
        version, status, reason = line[:-2].decode("latin-1").split(" ", 2)
        fields = {}
        for line in iter(self.stream.readline, b"\r\n"):
            if not line.endswith(b"\r\n"):
                raise ConnectionError("the server closed the connection within a head")
            name, _, value = line[:-2].decode("latin-1").partition(":")
            name, value = name.lower(), value.strip()
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
        body = b""
        if not head and int(status) not in (100, 204, 304):
            body = self.stream.read(int(fields["content-length"]))
        return Answer(version, int(status), reason, fields, body)

    def at_end(self):
        """Whether the server has closed, with nothing more said."""
        try:
            return self.stream.read(1) == b""
        except ConnectionResetError:
            return True
