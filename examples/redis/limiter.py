"""A limit that a fleet shares, from Python without weir's library.

    python3 limiter.py             on a server with the module
    python3 limiter.py weir.lua    on any server, by the script that `weir lua` prints

REDIS_URL says where the server is. Needs redis-py.
"""
import collections
import os
import sys

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

LIMIT = "token-bucket 3/h"
DEADLINE = float(os.environ.get("WEIR_DEADLINE", 0.05))  # seconds
NUMBERS = "0 0 -1 0 1 1 0 3 3600000000 3 0 0 0".split()  # weir lua --args "token-bucket 3/h"

Decision = collections.namedtuple(
    "Decision", "allowed limit remaining retry_after_us reset_after_us delay_us receipt")
UNKNOWN = Decision(1, 0, 0, 0, 0, 0, "")  # while no server answers: allow; or the other way round


class Limiter:
    def __init__(self, url, script=None):
        # No repetition: a take whose answer was lost may have been charged.
        self.redis = redis.Redis.from_url(url, decode_responses=True, socket_connect_timeout=1,
                                          socket_timeout=DEADLINE, retry=Retry(NoBackoff(), 0))
        # Sends EVALSHA, and the text only where a server does not know it.
        self.script = self.redis.register_script(script) if script else None

    def take(self, key):
        try:
            if self.script:
                reply = self.script(keys=[key], args=NUMBERS)
            else:
                reply = self.redis.execute_command("WEIR.TAKE", key, LIMIT)
        except (redis.ConnectionError, redis.TimeoutError):
            return UNKNOWN
        return Decision(*reply)


def main():
    script = None
    if len(sys.argv) > 1:
        with open(sys.argv[1], encoding="utf-8") as file:
            script = file.read()
    limiter = Limiter(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), script)
    for number in range(1, 5):
        decision = limiter.take("example:python")
        if decision is UNKNOWN:
            print(f"request {number}: allowed, no server answers")
        elif decision.allowed:
            print(f"request {number}: allowed, {decision.remaining} left")
        else:
            print(f"request {number}: denied, retry in {-(-decision.retry_after_us // 60_000_000)} min")


if __name__ == "__main__":
    main()
