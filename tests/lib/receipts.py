"""The server's receipts, made independently of it: for tests that read the secret of its zone.

    receipts.Signer.of_zone("path/of/the/zone").receipt(b"key", "token-bucket 10/s", 1700000000000000, 5)

The vectors settle charges that were never made, to see what is done with them; no server would sign such a
receipt, so that these are signed here. What the server signs must be the same.
"""
import functools
import pathlib
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "model"))
import limits as model  # noqa: E402

KINDS = ("token-bucket stepped leaky-bucket fixed-window from-first sliding-log sliding-window sliding-counter "
         "smooth warmup concurrent calendar").split()
UNITS = ("", "week", "month", "year")
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
MASK = (1 << 64) - 1


def siphash13(secret, data):
    """Both words: SipHash-1-3, and the other half of its final state."""
    a, b = secret[0] ^ 0x736f6d6570736575, secret[1] ^ 0x646f72616e646f6d
    c, d = secret[0] ^ 0x6c7967656e657261, secret[1] ^ 0x7465646279746573

    def mix():
        nonlocal a, b, c, d
        a, c = (a + b) & MASK, (c + d) & MASK
        b, d = rotate(b, 13) ^ a, rotate(d, 16) ^ c
        a = rotate(a, 32)
        c, a = (c + b) & MASK, (a + d) & MASK
        b, d = rotate(b, 17) ^ c, rotate(d, 21) ^ a
        c = rotate(c, 32)

    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        d ^= word
        mix()
        a ^= word
    c ^= 0xff
    for _ in range(3):
        mix()
    return a ^ b ^ c ^ d, a ^ c


def rotate(word, bits):
    return (word << bits | word >> (64 - bits)) & MASK


def letters(bits, count):
    return "".join(ALPHABET[bits >> 6 * i & 63] for i in range(count)).encode()


def id_of(receipt):
    """The id of a receipt with one: seven letters before the signature."""
    return sum(ALPHABET.index(letter) << 6 * i for i, letter in enumerate(receipt[-19:-12].decode()))


def state_of(limit):
    """What tells a limit's state from others: kind (and whether it has a cost of its own), period, and the rest."""
    kind, period, rest = limit.kind, limit.period, 0
    if kind == "concurrent":
        period = 0
    elif limit.stepped or limit.from_first:
        kind = "stepped" if limit.stepped else "from-first"
    elif kind == "sliding-window":
        rest = limit.precision
    elif kind == "fixed-window" and (limit.unit or limit.zone):
        kind = "calendar"
        anchor = functools.reduce(lambda all, part: all * 32 + part, limit.anchor, 0) + (limit.unit == "week")
        rest = (UNITS.index(limit.unit) * 512 + anchor) * 2048 + limit.zone + 720
    return struct.pack("<QQQ", KINDS.index(kind) | (limit.cost == 0) << 8, period, rest)


class Signer:
    def __init__(self, zone_secret):
        self.zone = zone_secret
        self.secret = siphash13(zone_secret, b"weir: the secret of receipts")
        self.known = {}

    @classmethod
    def of_zone(cls, path):
        """From a `file:` zone, whose secret stands behind magic, version and layout (src/store/zone/layout.h)."""
        with open(path, "rb") as zone:
            zone.seek(128)
            return cls(struct.unpack("<QQ", zone.read(16)))

    def hash(self, secret, data):
        """Keys and limits come again and again."""
        if (secret, data) not in self.known:
            self.known[secret, data] = struct.pack("<QQ", *siphash13(secret, data))
        return self.known[secret, data]

    def receipt(self, key, limit, time, charged, name=0):
        """`limit` is canonical text. The states that it names are signed, not its counts."""
        body = b"w4-%d-%d-%s" % (time, charged, letters(name, 7)) if name else b"w2-%d-%d" % (time, charged)
        said = struct.pack("<qqQ", time, charged, name) if name else struct.pack("<qq", time, charged)
        signed = self.hash(self.zone, key) + self.hash(self.secret, b"".join(map(state_of, model.parse(limit)))) + said
        signature = siphash13(self.secret, signed)[0]
        return body + b"-" + letters(signature, 11)
