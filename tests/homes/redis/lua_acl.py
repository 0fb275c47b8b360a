#!/usr/bin/env python3
"""The user of docs/REDIS.md is enough for everything the scripts do, and nothing it may do is too much."""
import sys

from lib import checks, lua_cases, redis_server
from lib.lua_cases import evaluate, general, parse
from lib.resp import RedisError

SCRIPTS = ["evalsha", "eval", "script|load", "time", "get", "getrange", "strlen", "exists", "set",
           "setrange", "pexpireat", "del"]
FUNCTIONS = ["fcall", *SCRIPTS[3:]]


def user(admin, commands):
    """The user with just these commands, no keys yet."""
    admin.call("FLUSHALL")
    admin.call("ACL", "SETUSER", "limiter", "reset", "on", ">secret", "~weir:*", *(f"+{word}" for word in commands))


def exercise(client, functions):
    """Every verb, long rings too; the replies that are errors."""
    log, leases, window = parse("sliding-log 900/h"), parse("concurrent 9"), parse("fixed-window 9/d")
    calls = [general("take", window), general("peek", window),
             general("settle", window, 0, wait="w1-1700000000000000-1"),
             general("acquire", leases, lease=5), general("renew", leases, lease=5),
             general("release", leases, lease=5)]
    calls += [general("take", log) for _ in range(70)] + [[3]]
    lean = log[0].lean_arguments(1, -1)
    bucket = parse("token-bucket 1/h burst 9")[0].lean_arguments(1, -1)
    if functions:
        wide = [("FCALL", "weir", 1, "weir:k", *call) for call in calls]
        return errors(client.pipeline(wide + [("FCALL", "weir_take_sliding_log", 1, "weir:l", *lean)] * 70
                                      + [("FCALL", "weir_take_token_bucket", 1, "weir:b", *bucket)]))
    text, sha = lua_cases.SCRIPTS["weir"], lua_cases.sha1("weir")
    commands = [("SCRIPT", "LOAD", text), ("EVAL", text, 1, "weir:e", *calls[0])]
    commands += [("SCRIPT", "LOAD", lua_cases.SCRIPTS[name]) for name in ("take_sliding_log", "take_token_bucket")]
    commands += [evaluate(sha, ["weir:k"], call) for call in calls]
    commands += [evaluate(lua_cases.sha1("take_sliding_log"), ["weir:l"], lean)] * 70
    commands += [evaluate(lua_cases.sha1("take_token_bucket"), ["weir:b"], bucket)]
    return errors(client.pipeline(commands))


def errors(replies):
    return [str(reply) for reply in replies if isinstance(reply, RedisError)]


def main():
    tally = checks.Checks()
    with redis_server.Server() as server, server.client() as admin:
        admin.call("FUNCTION", "LOAD", lua_cases.SCRIPTS["weir_library"])
        for functions, needed in ((False, SCRIPTS), (True, FUNCTIONS)):
            user(admin, needed)
            with server.client(user="limiter", password="secret") as client:
                tally.equal(exercise(client, functions), [], f"a user with {needed}")
                command = (("FCALL", "weir") if functions else ("EVALSHA", lua_cases.sha1("weir")))
                reply = client.pipeline([(*command, 1, "else:k", *general("take", parse("fixed-window 9/d"))),
                                         ("KEYS", "*"), ("CONFIG", "GET", "*"), ("FLUSHALL",)])
                tally(all("NOPERM" in str(each) for each in reply), f"beyond its rights: {reply!r}")
            for word in needed:
                user(admin, [other for other in needed if other != word])
                with server.client(user="limiter", password="secret") as client:
                    found = exercise(client, functions)
                    tally(found and all("WEIRSTATE" not in error for error in found),
                                f"without {word}: {found[:2]}")
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
