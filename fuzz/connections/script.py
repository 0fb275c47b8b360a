"""A script says what clients do, one step a line; it is what is generated, kept as corpus, and played again.

    open C tcp|unix [BYTES]     connects; BYTES: a receive buffer of that size, which is not read until `read`
    send C [*N] "TEXT"          bytes, as JSON text with one character for each; N times
    want C [*N] KIND …          one more answer is due on C, or N more (play.py has the kinds); `want C /S KIND …`: of stream S
    loose C                     from here on C need not be answered: what it sends may end it
    read C | stop C             reads what comes, or leaves it where it is
    half C                      no more bytes from here, answers are still wanted
    reset C | close C           ends it at once (RST), or with FIN
    pause MS                    time passes, and answers are read
    store stop|cont|kill|start|pause MS     what happens to Redis, where there is one
    reload                      the server reads its files again

C is any number, used once. Lines that begin with # are remarks; `#! WORLD` names the server that the script needs.
"""
import collections
import json

Step = collections.namedtuple("Step", "verb conn words")
WITHOUT_CONNECTION = ("pause", "store", "reload")


def send(conn, data):
    return Step("send", conn, (data,))


def dump(steps):
    lines = []
    for verb, conn, words in steps:
        if verb == "send":
            words = (json.dumps(words[0].decode("latin-1")),)
        lines.append(" ".join(map(str, (verb, *(() if conn is None else (conn,)), *words))))
    return "\n".join(lines) + "\n"


def load(text):
    """(world or None, steps)"""
    world, steps = None, []
    for line in text.splitlines():
        if line.startswith("#!"):
            world = line[2:].strip()
        if not line.strip() or line.startswith("#"):
            continue
        verb, _, rest = line.partition(" ")
        conn = None
        if verb not in WITHOUT_CONNECTION:
            number, _, rest = rest.partition(" ")
            conn = int(number)
        times = 1
        if rest.startswith("*"):
            count, _, rest = rest[1:].partition(" ")
            times = int(count)
        if verb == "send":
            steps.append(send(conn, json.loads(rest).encode("latin-1") * times))
        else:
            steps += [Step(verb, conn, tuple(rest.split()))] * times
    return world, steps
