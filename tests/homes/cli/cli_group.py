#!/usr/bin/env python3
"""A zone that services of different users share: mode=0660&group=NAME, with real users. Needs root; without it only
the refusals of addresses are tested (tests/unit/zone_space.c), and this says so.

    tests/homes/cli/cli_group.py [NAME …]
"""
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from lib import build, checks

ANN, BOB, EVE = 61001, 61002, 61003
GROUP, OTHERS = 61500, 61501
ACCESS = f"mode=0660&group={GROUP}"
LIMIT = "fixed-window 40/d"


class Place:
    """A folder of the group with programs that everybody may run, and a name in shared memory."""

    def __init__(self, scheme):
        self.scheme = scheme
        self.folder = Path(tempfile.mkdtemp(prefix="weir-group-"))
        os.chmod(self.folder, 0o755)
        for program in (build.WEIR, build.BUILD / "tests" / "hold_zone"):
            shutil.copy(program, self.folder)
        self.files = self.folder / "files"
        self.files.mkdir()
        os.chown(self.files, 0, GROUP)
        os.chmod(self.files, 0o770)
        self.name = f"/weir-group-{os.getpid()}"
        self.path = self.files / "zone" if scheme == "file" else Path("/dev/shm" + self.name)

    def url(self, options=ACCESS):
        return f"file:{self.path}?{options}" if self.scheme == "file" else f"shm:{self.name}?{options}"

    def start(self, user, words, groups=(GROUP,), umask=0o077):
        return subprocess.Popen([self.folder / words[0], *words[1:]], user=user, group=user, extra_groups=groups, umask=umask,
                                cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def weir(self, user, *words, **how):
        process = self.start(user, ["weir", *words], **how)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def take(self, user, cost=1, options=ACCESS, **how):
        return self.weir(user, "take", "k", LIMIT, "--cost", str(cost), "--store", self.url(options), **how)

    def remove(self):
        self.path.unlink(missing_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()
        shutil.rmtree(self.folder)


def both(test):
    def run(check):
        for scheme in ("file", "shm"):
            with Place(scheme) as place:
                test(check, place)
    run.__name__ = test.__name__
    return run


@both
def test_not_shared(check, place):
    """Who may not open a zone is told whose it is, and what to do."""
    check.equal(place.take(ANN, options="size=256k")[0], 0, f"{place.scheme}: ann's alone")
    code, out, err = place.take(BOB, options="")
    check.equal((code, out), (3, ""), f"{place.scheme}: bob may not open it")
    for part in (f"belongs to user {ANN}", "permissions 0600", f"you are user {BOB}", f"run as user {ANN}", "mode=0660&group=NAME"):
        check(part in err, f"{place.scheme}: {part}: {err}")
    if place.scheme == "file":
        code, out, err = place.take(BOB, options="", groups=())
        check(code == 3 and "Permission denied" in err, f"file: a folder that he may not look into: {err}")


@both
def test_shared(check, place):
    """One count, whoever made the zone, whatever the umask is."""
    for maker, umask in ((ANN, 0o077), (BOB, 0o000), (ANN, 0o777)):
        place.remove()
        code, out, err = place.take(maker, 3, ACCESS + "&size=256k", umask=umask)
        check(code == 0 and "37 of 40" in out, f"{place.scheme}: made by {maker}: {out}{err}")
        status = place.path.stat()
        check.equal((stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid), (0o660, maker, GROUP), "its rights")
        code, out, err = place.take(ANN + BOB - maker, 4)
        check(code == 0 and "33 of 40" in out, f"{place.scheme}: the other one: {out}{err}")
        code, out, err = place.weir(BOB, "zone", "--check", place.url())
        check(code == 0, f"sound: {err}")


@both
def test_refused(check, place):
    """What is accepted is what the address asks for; the message says what to do."""
    place.take(ANN, 1, ACCESS + "&size=256k")
    for user, options, groups, says in (
            (EVE, ACCESS, (), "ermission denied"),
            (BOB, "size=256k", (GROUP,), f"run as user {ANN}, choose another path, or share it by mode=0660&group=NAME"),
            (ANN, "size=256k", (GROUP,), "add mode=0660&group=NAME"),
            (ANN, f"mode=0660&group={OTHERS}", (GROUP, OTHERS), f"chgrp {OTHERS} it"),
            (ANN, "mode=0666&group=0", (GROUP,), "expected 0600, or 0660"),
            (ANN, "mode=0660&group=nobody-knows", (GROUP,), "there is no group"),
            (ANN, "mode=0660", (GROUP,), "give both")):
        code, out, err = place.take(user, 1, options, groups=groups)
        check(code in (2, 3) and says in err, f"{place.scheme}: {user} {options}: {code} {out}{err}")
    for mode in (0o600, 0o666, 0o664, 0o640):
        os.chmod(place.path, mode)
        code, out, err = place.take(ANN)
        check(code == 3 and "chmod 660" in err, f"{place.scheme}: {mode:o}: {code} {out}{err}")
    place.remove()
    code, out, err = place.take(ANN, 1, f"mode=0660&group={OTHERS}")
    check(code == 3 and f"is user {ANN} a member of it?" in err, f"{place.scheme}: not a member: {out}{err}")
    check(not place.path.exists(), "nothing is left")
    code, out, err = place.take(ANN, 1, "size=256k")
    check(code == 0 and stat.S_IMODE(place.path.stat().st_mode) == 0o600, f"without a group it is hers: {err}")
    code, out, err = place.take(ANN)
    check(code == 3 and "chgrp" in err, f"and does not become the group's: {err}")


@both
def test_at_once(check, place):
    """Both make it, again and again, and both count in it."""
    for _ in range(10):
        place.remove()
        started = [place.start(user, ["weir", "take", "k", "fixed-window 4/d", "--store", place.url(ACCESS + "&size=256k")])
                   for user in (ANN, BOB) * 3]
        ended = [process.communicate(timeout=60) for process in started]
        codes = sorted(process.returncode for process in started)
        check.equal(codes, [0, 0, 0, 0, 1, 1], f"{place.scheme}: {ended}")


@both
def test_death(check, place):
    """Who dies with every lock blocks nobody, whoever the next one is."""
    place.take(ANN, 1, ACCESS + "&size=256k")
    holder = place.start(ANN, ["hold_zone", place.url(), "all"])
    check.equal(holder.stdout.readline(), "held\n", "the locks are held")
    os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    code, out, err = place.take(BOB, 2)
    check(code == 0 and "37 of 40" in out, f"{place.scheme}: {code} {out}{err}")
    code, out, err = place.weir(BOB, "zone", "--check", place.url())
    check(code == 0, f"sound: {err}")


@both
def test_resized(check, place):
    """The other one may make it again in another size where the directory lets it."""
    place.take(ANN, 5, ACCESS + "&size=256k")
    code, out, err = place.take(BOB, 5, ACCESS + "&size=512k")
    if place.scheme == "file":
        check(code == 0 and "30 of 40" in out, f"carried over: {code} {out}{err}")
        check.equal(place.path.stat().st_uid, BOB, "it is the other's by now")
    else:  # sticky: only the owner may replace it
        check(code == 3 and "its owner" in err, f"refused: {code} {out}{err}")
        check(not Path(str(place.path) + ".carry").exists(), "nothing is left")
    code, out, err = place.take(ANN, 1)
    check(code == 0 and ("29 of 40" if place.scheme == "file" else "34 of 40") in out, f"it goes on: {code} {out}{err}")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    if os.geteuid() != 0:
        print("not root: users cannot be tried; left out")
        sys.exit(0)
    sys.exit(checks.run(TESTS, sys.argv[1:]))
