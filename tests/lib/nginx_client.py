"""Connections to an nginx: as tests/lib/http_client.py's, for answers of all kinds, with the module's variables."""
import json

from . import http_client
from .http_client import request
from .weir_server import PATIENCE_SECONDS

# all variables of the module in one field of the answer: answer.weir["remaining"] (texts; empty: never, or nothing)
NAMES = "status limit remaining retry_after_us reset_us delay_us retry_after reset delay binding degraded granted local".split()
SHOWN = "add_header X-Weir \"" + "|".join(f"$weir_{name}" for name in NAMES) + "\" always;"


def get(path, fields=None, method="GET", body=None):
    """The bytes of a request, for pipelines."""
    return request(method, path, fields, body)


class Answer(http_client.Answer):
    @property
    def text(self):
        return self.body.decode("latin-1")

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def weir(self):
        """The module's variables, where SHOWN is in force; {} where it is not."""
        values = self.fields.get("x-weir", "").split("|")
        return dict(zip(NAMES, values)) if len(values) == len(NAMES) else {}


class Client(http_client.Client):
    """As tests/lib/http_client.py's; bodies may also be chunked, or end with the connection."""

    def __init__(self, port, host="127.0.0.1", timeout=PATIENCE_SECONDS):
        super().__init__(port, host, timeout)

    def get(self, path, fields=None, method="GET", body=None):
        return self.ask(get(path, fields, method, body), head=method == "HEAD")

    def read(self, head=False):
        line = self.line()
        version, status, reason = (line + " ").split(" ", 2)
        fields = {}
        for line in iter(self.line, ""):
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip()
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
        body = b"" if head or int(status) in (100, 204, 304) else self.body(fields)
        return Answer(version, int(status), reason.strip(), fields, body)

    def line(self):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError(f"nginx closed the connection: {line!r}")
        return line[:-2].decode("latin-1")

    def body(self, fields):
        if "content-length" in fields:
            return self.exactly(int(fields["content-length"]))
        if fields.get("transfer-encoding") != "chunked":
            return self.stream.read()
        body = b""
        while size := int(self.line(), 16):
            body += self.exactly(size)
            self.line()
        self.line()
        return body

    def exactly(self, size):
        data = self.stream.read(size)
        if len(data) != size:
            raise ConnectionError(f"nginx closed the connection after {len(data)} of {size} bytes")
        return data
