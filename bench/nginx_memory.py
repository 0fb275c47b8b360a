"""Bytes per key: how many keys a zone of one size has when it forgets the first of them. For bench/nginx.py."""
import collections
import dataclasses
import sys

import nginx_rows
from nginx_rows import LIMIT_REQ, ask_all

SIZE, STEP = "2m", 64
ONCE = 'weir_limit key=$arg_k zone=ZONE "token-bucket 1/366d";'


@dataclasses.dataclass(frozen=True)
class Kept:
    """Who keeps keys of this length, in two zones: in the first they are counted, in the second asked for again."""
    number: int
    name: str
    zone: str
    limit: str
    length: int

    def zone_name(self, which):
        return f"zone{self.number}{which}"

    def port_name(self, which):
        return f"port{self.number}{which}"

    def text(self, which):
        name = self.zone_name(which)
        return f"{self.zone.replace('ZONE', name)}\nserver {{ listen 127.0.0.1:{{{self.port_name(which)}}}; " \
               f"location / {{ {self.limit.replace('ZONE', name)} empty_gif; }} }}\n"

    def keys(self, start, end):
        return [f"{i:0{self.length}d}" for i in range(start, end)]


def all_kept():
    kinds = [(LIMIT_REQ, f"limit_req_zone $arg_k zone=ZONE:{SIZE} rate=1r/m;", "limit_req zone=ZONE;"),
             ("weir token-bucket", f"weir_zone ZONE {SIZE};", ONCE),
             ("weir token-bucket, large=0%", f"weir_zone ZONE {SIZE} large=0%;", ONCE)]
    return [Kept(at, *kind, length) for at, (length, kind) in
            enumerate((length, kind) for length in (12, 60) for kind in kinds)]


def live_evictions(client, zone):
    info = next(it for it in client.get("/info").json["zones"] if it["name"] == zone)
    return info["evicted_unused"] + info["evicted_soonest"]


def first_forgotten(nginx, client, it):
    """How many keys were there when the first was gone. limit_req forgets the one not asked for longest: it is asked for,
    and then another is that. weir may forget any, and says so."""
    keys = collections.deque()
    while True:
        new = it.keys(len(keys), len(keys) + STEP)
        if set(ask_all(nginx, it.port_name(1), new)) != {200}:
            sys.exit(f"{it.name}: a key never seen before was denied")
        keys += new
        if it.name == LIMIT_REQ:
            gone = ask_all(nginx, it.port_name(1), [keys[0]]) == [200]
            keys.rotate(-1)
        else:
            gone = live_evictions(client, it.zone_name(1)) > 0
        if gone:
            return len(keys)


def forgotten(nginx, it, count):
    """Of so many keys in the second zone, those that are fresh when they are asked for again."""
    keys = it.keys(0, count)
    ask_all(nginx, it.port_name(2), keys)
    return ask_all(nginx, it.port_name(2), keys).count(200)


def show(build):
    size = int(SIZE[:-1]) << 20
    print(f"\nkeys in a zone of {SIZE} when the first is forgotten (to {STEP}), and how many of as many in a second zone are "
          f"when all are asked for again\n  {'':42} {'keys':>9} {'bytes per key':>13} {'forgotten':>10}")
    with nginx_rows.start(build, "".join(it.text(1) + it.text(2) for it in all_kept())) as nginx:
        with nginx.client() as client:
            for it in all_kept():
                count = first_forgotten(nginx, client, it)
                again = forgotten(nginx, it, count - STEP)
                print(f"  {f'{it.name}, keys of {it.length}':42} {count:9,} {size / count:12.1f} {again:10,}", flush=True)
