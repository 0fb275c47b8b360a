#!/usr/bin/env python3
"""What somebody does with the answer of weir suggest: believe its first limit, spare somebody, paste the lines, and run the replay that it prints.

    tests/homes/desk/choosing.py [NAME …]
"""
import atexit
import html
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from lib import build, checks, nginx_server, weir_server

T = 1794787200  # 2026-11-16T00:00:00Z
WEIR = weir_server.WEIR
SAMPLE = build.ROOT / "examples" / "access.log.gz"  # a day of a shop; its attack is in the second half
OFFICE, SCRAPER, ATTACKER = "192.0.2.10", "192.0.2.77", "203.0.113.200"
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="weir-choosing-"))
atexit.register(shutil.rmtree, FOLDER, True)


def weir(*words, code=None):
    done = subprocess.run([str(WEIR), *map(str, words)], capture_output=True, timeout=600, env=weir_server.environment(), stdin=subprocess.DEVNULL, text=True)
    if code is not None and done.returncode != code:
        raise RuntimeError(f"weir {words}: exit code {done.returncode}: {done.stderr}")
    return done


def suggest(*words, code=0):
    return json.loads(weir("suggest", "--json", *words, code=code).stdout)


def replay(*words):
    return json.loads(weir("replay", "--json", *words, code=0).stdout)


def write(name, rows):
    """A log of JSON lines: (seconds, key, path, method)."""
    path = FOLDER / name
    path.write_text("".join(json.dumps({"time": T + round(at, 3), "ip": ip, "path": target, "method": method}) + "\n" for at, ip, target, method in sorted(rows)))
    return path


def visits(draw, keys, seconds, each):
    """Keys that ask now and then."""
    return [(draw.uniform(0, seconds), f"198.51.{i // 250}.{i % 250 + 1}", "/", "GET") for i in range(keys) for _ in range(draw.randint(1, each))]


def heavy(draw, start):
    """One key makes 93 % of the requests, from `start` on."""
    return write("heavy.json", [*visits(draw, 150, 7200, 12), *((draw.uniform(start, 7200), ATTACKER, "/", "GET") for _ in range(13000))])


def test_first(check):
    """The first suggestion denies nobody who is not stopped, and no plain limit that denies nobody in the first half stops more."""
    told = suggest(SAMPLE)
    first = told["suggestions"][0]
    check.equal(first["chosen"], {"denied": 0, "keys_denied": 0, "suspects_denied": 0}, f"{first['limits']}: denies nobody in the first half")
    check.equal([it["key"] for it in first["judged"]["most_denied"]], [ATTACKER], f"{first['limits']}: denies only the attack in the second")
    plain = [f"token-bucket {rate} burst {burst}" for rate in ("30/m", "1/s", "2/s") for burst in (5, 10, 20, 50)]
    named = ["first=" + first["limits"], *(f"plain{i}={limit}" for i, limit in enumerate(plain))]
    seen = replay(*(word for limit in named for word in ("--limit", limit)), SAMPLE)["candidates"]
    for it in seen[1:]:
        if it["keys_denied"] <= seen[0]["keys_denied"]:
            check(it["denied"] <= 1.02 * seen[0]["denied"], f"{it['limits']} does not beat {first['limits']}: {it['denied']}, {seen[0]['denied']}")
    tight = re.fullmatch(r"token-bucket (\d+)/m", first["limits"])
    half = int(tight[1]) // 2
    check.contains(first["why"], "half as much would have been enough", "it has room")
    seen = replay(f"token-bucket {half}/m burst {half}", "--where", f"ip!={ATTACKER}", SAMPLE)
    check.equal(seen["most_denied"], [], "and that is true")


def test_room_in_other_logs(check):
    """Whoever is denied by the first suggestion loses at least half, in logs of all kinds; but for one key at most, that was not seen like this before."""
    draw = random.Random(checks.seed())
    nat = [(draw.uniform(0, 7200), OFFICE, "/", "GET") for _ in range(6000)]
    for name, rows in {"an office": nat, "an office and an attack": [*nat, *((draw.uniform(5000, 5400), ATTACKER, "/", "GET") for _ in range(9000))],
                       "nobody": [], "a scraper": [(4.0 * i, SCRAPER, "/", "GET") for i in range(1800)]}.items():
        log = write("room.json", [*visits(draw, 300, 7200, 20), *rows])
        first = suggest(log)["suggestions"][0]
        little = [it for it in first["judged"]["most_denied"] if 2 * it["denied"] < it["requests"]]
        check(len(little) <= 1, f"{name}: {first['limits']} takes a little from {little}")
        check(first["meets_goal"], f"{name}: {first['limits']} meets the goal")
        if "attack" in name:
            first = suggest(log, "--spare", OFFICE)["suggestions"][0]
            check.equal([it["key"] for it in first["judged"]["most_denied"]], [ATTACKER], f"{name}: {first['limits']} stops only the attack, if the office is to be spared")


def test_spared(check):
    """A key is left out of a limit only if the limit denies it. Terminal, page and JSON name it."""
    page = FOLDER / "spared.html"
    told = suggest(SAMPLE, "--spare", OFFICE)
    first, second = told["suggestions"]
    check.equal([first["left_out"], second["left_out"]], [False, True], "only the strict one needs an exemption")
    check("allow" not in first["policy"] and "geo" not in first["nginx"], "no exemption in the first text")
    check("allow" in second["policy"] and "geo" in second["nginx"], "one in the second")
    check.equal(told["spared"]["heaviest"], [{"key": OFFICE, "requests": 2027}], "JSON says who is spared")
    for it in told["suggestions"]:
        seen = replay(it["limits"], SAMPLE)["most_denied"]
        check.equal(any(key["key"] == OFFICE for key in seen), it["left_out"], f"{it['limits']}: denies the spared key, without an exemption")
    out = weir("suggest", SAMPLE, "--spare", OFFICE, "--report", page, code=0).stdout
    text = html.unescape(page.read_text())
    for said in ("192.0.2.10 with 2027 requests", "never denied by this limit, so it needs no exemption", "left out: it would deny them, 775 requests in the first half"):
        check.contains(" ".join(out.split()), said, "the terminal")
        check.contains(text, said, "the page")
    row = re.search(r">192\.0\.2\.10</td><td>[^<]+</td><td>[\d.]+%</td>(.*)</tr>", text[text.index("Heaviest keys"):])
    check.equal(row and row[1], '<td>0</td><td class="soft">spared</td>', "the page says which limit spares the key")
    many = weir("suggest", SAMPLE, "--spare", "198.51.100.0/24", code=0).stdout
    check(re.search(r"to spare .* and \d+\s+more; \d+ requests in all", " ".join(many.split())), "a network: some names, and how many more")
    everybody = suggest(SAMPLE, "--spare", "0.0.0.0/0", "--spare", "::/0", code=1)
    check.equal((everybody["verdict"], everybody["suggestions"]), ("too short", []), "everybody is spared")
    check.contains(everybody["reason"], "only requests of keys that are to be spared", "everybody is spared: says so")
    check.contains(everybody["advice"], "--deny-keys 0%", "everybody is spared: what to do")


def test_replay_spare(check):
    """weir replay --spare decides as a policy with allow does."""
    policy = FOLDER / "spare.yaml"
    policy.write_text(f'version: 1\npolicies:\n  - {{name: c, allow: [{{ip: ["{OFFICE}", "198.51.100.0/24"]}}], key: ip, limit: "token-bucket 2/m"}}\n')
    words = ("--spare", OFFICE, "--spare", "198.51.100.0/24")
    one, other = replay("token-bucket 2/m", *words, SAMPLE), replay("--policies", policy, SAMPLE)
    for name in ("allowed", "denied", "keys_denied", "most_denied", "highest_admitted"):
        check.equal(one[name], other[name], f"{name} as with a policy")
    check.equal(one["spared"]["heaviest"][0], {"key": OFFICE, "requests": 2027}, "the heaviest of those that are spared")
    rows = [row.split(",") for row in weir("replay", "token-bucket 2/m", *words, "--decisions", SAMPLE, code=0).stdout.splitlines()[1:]]
    check(all(row[3] == "1" for row in rows if row[1] == OFFICE), "--decisions: the spared key is always allowed")
    check.equal(sum(row[3] == "0" for row in rows), one["denied"], "--decisions: as many are denied")
    check.contains(weir("replay", "token-bucket 2/m", *words, SAMPLE).stdout, ", left out of the limit\n", "the summary says so")
    limits = [word for it in ("bucket=token-bucket 30/m", "window=sliding-counter 50/h", "a-very-long-name-of-mine=fixed-window 500/h", *(f"c{i}=fixed-window {i + 1}/h" for i in range(9))) for word in ("--limit", it)]
    several = replay(*limits, "--spare", OFFICE, SAMPLE)["candidates"]
    for it in several[:5]:
        alone = {row["key"]: row["denied"] for row in replay(it["limits"], "--where", f"ip={OFFICE}", SAMPLE)["most_denied"]}
        check.equal(it["spared_would_deny"], alone.get(OFFICE, 0), f"{it['limits']}: what it would deny to the spared key")
    out = weir("replay", *limits, "--spare", OFFICE, "--report", FOLDER / "spare.html", SAMPLE, code=0).stdout
    check(re.search(r"^window  .* 1552$", out, re.M) and "  if not spared        1552  more would be denied\n" in out, "a limit that would deny the spared key says so")
    check.contains(out, "left out of every limit, also of your own\n", "several limits: none denies it")
    page = (FOLDER / "spare.html").read_text().replace("\u202f", "")
    check("<th>if not spared</th>" in page and "<td>1552</td></tr>" in page and "<b>1552</b><span>more would be denied, if not spared" in page, "the page, too")
    table = out[out.index("\nRequests per key, and how many of them each limit denied\n"):].splitlines()[3:]
    check.equal(table[0].split(), ["requests", "of", "all", "bucket", "window", "a-very-long-", "c0", "key"], "keys by limits: as many as fit")
    check.equal([row.split() for row in table[1:4]], [["3600", "15.56%", "3481", "3550", "3100", "3599", ATTACKER], ["2880", "12.45%", "0", "1703", "0", "2856", SCRAPER],
                                                      ["2027", "8.76%", "0", "0", "0", "0", OFFICE, "spared"]], "keys by limits")
    check.equal(table[-1].strip(), "and 8 more limits: see --report or --json", "keys by limits: what is cut is told")
    one = weir("replay", *limits[:10], SAMPLE, code=0).stdout
    check.contains(one, "and 1 more limit: see --report or --json", "one limit is cut")
    check("if not spared" not in weir("replay", *limits, SAMPLE).stdout, "nobody is spared: no such column")
    trace = FOLDER / "spare.csv"
    trace.write_text("time,key\n" + "0,ann\n0,bob\n" * 3)
    check.equal(replay("token-bucket 1/s", "--spare", "ann", trace)["denied"], 2, "a trace")
    for words, said in ((["--spare", "203.0.113.7"], "no key of the log is like this"), (["--spare", ""], "it is empty"), (["--spare", "10.0.0.1/8"], "invalid --spare"),
                        (["--spare", OFFICE, "--store", "memory:1m"], "--spare leaves keys out")):
        got = weir("replay", "token-bucket 2/m", SAMPLE, *words)
        check.equal((got.returncode, got.stdout), (2, ""), f"{words}: wrong usage")
        check.contains(got.stderr, said, f"{words}: says so")
    for command in (["suggest"], ["replay", "token-bucket 2/m"]):
        plain = weir(*command, SAMPLE, "--where", "path=/login")
        got = weir(*command, SAMPLE, "--where", "path=/login", "--spare", "203.0.113.7")
        check.equal(got.returncode, plain.returncode, f"{command[0]}: one list of addresses to spare for all filters")
        check.contains(got.stderr, '--spare "203.0.113.7": no request that --where selects has such a key', f"{command[0]}: a note")
    check.contains(weir("replay", "--policies", policy, "--spare", OFFICE, SAMPLE).stderr, "a policy file says it by itself (allow)", "--policies: says what to do")


def test_heavy_key(check):
    """One key makes most of the traffic: the output says what to do, and that works."""
    draw = random.Random(checks.seed() + 1)
    log = heavy(draw, 3700)
    told = suggest(log, "--deny-requests", "1%", code=1)
    check(re.match(r"One key makes 9\d\.\d% of the requests\.", told["reason"]), f"the attack is in the second half: {told['reason']}")
    goal = re.search(r"--deny-keys ([0-9.]+%)", told["advice"])
    check.equal([it["key"] for it in suggest(log, "--deny-keys", goal[1])["suggestions"][0]["judged"]["most_denied"]], [ATTACKER], "the advice is good")
    log = heavy(draw, 0)
    for words, said in (([], "If it must pass, name it with --spare."), (["--deny-requests", "1%"], "to stop it, use --deny-keys instead.")):
        out = " ".join(weir("suggest", log, *words, code=0).stdout.split())
        check(re.search(rf"note {ATTACKER} alone makes 9\d\.\d% of the requests\.", out), f"{words}: it is named")
        check.contains(out, said, f"{words}: what to do")
    check("alone makes" not in weir("suggest", log, "--spare", ATTACKER, code=0).stdout, "who is spared is known")
    only = suggest(write("only.json", [(i / 10, ATTACKER, "/", "GET") for i in range(3000)]))
    check.equal(only["goal"], {"deny_keys": 0, "default": True}, "the only key: nobody is to be denied")
    check.contains(suggest(log, "--key", "'all'")["suggestions"][0]["why"], "All together may ask ", "one key for all")


def test_goal(check):
    """The usual goal is the same for pages and for logins. Whether it is met is said in so many words."""
    pages, logins = suggest(SAMPLE), suggest(SAMPLE, "--where", "path=/login")
    check.equal(pages["goal"], logins["goal"], "the same goal, whatever is selected")
    check.equal([it["key"] for it in logins["suggestions"][0]["judged"]["most_denied"]], [ATTACKER], "it is of use for 72 keys")
    for rate, said in (("1/s", "at most 1 goes ahead per second, and the rest is denied."), ("2/s", "at most 2 go ahead per second; up to 1 more waits for its turn, at most half a second, and the rest is denied.")):
        check.contains(" ".join(weir("suggest", SAMPLE, "--protect", rate).stdout.split()), said, f"--protect {rate}: what the queue does")
    for words in ([], ["--deny-keys", "0.6%"], ["--deny-requests", "10%"], ["--protect", "20/s"]):
        said = re.findall(r"^  goal +(met|missed)", weir("suggest", SAMPLE, *words).stdout, re.M)
        told = json.loads(weir("suggest", "--json", SAMPLE, *words).stdout)["suggestions"]
        check.equal(said, ["met" if it["meets_goal"] else "missed" for it in told], f"{words}: met or not")
    missed = weir("suggest", heavy(random.Random(checks.seed() + 1), 3700), "--deny-requests", "3%", code=1).stdout
    check(re.search(r"goal +missed: 9\d\.\d% of the requests were denied, and the goal is 3%", missed), f"by how much it is missed: {missed}")


def test_why(check):
    """The reason speaks of the limit that it stands beside."""
    draw = random.Random(checks.seed() + 2)
    logs = [[SAMPLE], [SAMPLE, "--where", "path=/login"], [SAMPLE, "--where", "path=/login", "--deny-keys", "3%"], [heavy(draw, 0)],
            [write("slow.json", visits(draw, 300, 7200, 3)), "--deny-keys", "5%"], [write("brief.json", visits(draw, 40, 60, 3)), "--deny-keys", "5%"]]
    units = {"s": "second", "m": "minute", "h": "hour", "d": "day", "10s": "10 seconds"}
    for words in logs:
        for it in suggest(*words)["suggestions"]:
            for limit in it["limits"].split(", "):
                kind, count, unit, burst = re.fullmatch(r"(token-bucket|sliding-counter) (\d+)/(\w+)(?: burst (\d+))?", limit).groups()
                if kind == "sliding-counter":
                    said = f"{count} times within {'' if unit == '10s' else 'an ' if unit == 'h' else 'a '}{units[unit]}, "
                elif (burst or count) == "1":
                    said = "once every "
                else:
                    said = f"{burst or count} times at once, then {count} per {units[unit]}"
                check.contains(it["why"], said, f"{limit}: {it['why']}")
                if kind == "sliding-counter":
                    one = said.split(" within ")[1][:-2]
                    check.contains(it["why"], f"at the end of {one} of the clock gets as many during the next: up to {2 * int(count)} within {one}. ", f"{limit}: at its edges")
            nobody = "nobody would have been denied" in it["why"]
            check.equal(nobody, it["chosen"]["denied"] == 0, f"{it['limits']}: {it['why']}")


def test_nginx(check):
    """What is pasted limits what --where selects: the location, and only the method."""
    told = suggest(SAMPLE, "--where", "path=/login", "--where", "method=POST")
    text = told["suggestions"][0]["nginx"]
    count = int(re.search(r'"token-bucket (\d+)/m"', text)[1])
    http, _, server = text.partition("# in server { ... }:\n")
    server = server.replace("# Then what the location does", "rewrite ^ /page break; proxy_pass http://127.0.0.1:{port}; # Then what the location does")
    with nginx_server.Nginx(http=http, server=server + "location = /page { empty_gif; } location = /page/ { empty_gif; }") as nginx:
        check("[warn]" not in nginx.errors(), "nginx does not warn")
        check.equal(nginx.statuses(["/login"] * (count + 3)).count(429), 0, "GET is not limited")
        posts = [nginx.get("/login", method="POST").status for _ in range(count + 3)]
        check.equal(posts.count(429), 3, f"POST is: {posts}")
    for where, said in (("path=/api/*", 'location ~* "^(/(.*/)?([ .]+|[ .]*;[^/]*))?/+ *api[ .]*(;[^/]*)?/" {'), ("path=/a|/b", 'location ~* "^(/(.*/)?([ .]+|[ .]*;[^/]*))?/+ *b[ .]*(/(([^/]*/){0,5} *\\.\\.)?[ ./]*)?(;|$)" {'), ("method!=GET", 'map $request_method $not_get_other { default ""; GET 1; }')):
        log = write("paths.json", [(at, ip, draw, method) for at, ip, draw, method in
                                   ((i / 7, f"198.51.100.{i % 200}", ("/api/x", "/a", "/b")[i % 3], ("GET", "POST")[i % 2]) for i in range(9000))])
        told = suggest(log, "--where", where)["suggestions"]
        check.contains(told[0]["nginx"], said, where)
        for it in told:
            before, _, inside = it["nginx"].partition("# in server { ... }:\n")
            code, wrong = nginx_server.Nginx.check(before + "server { listen {port}; root {folder}; " + inside + "}")
            check.equal(code, 0, f"{where}: nginx takes {it['nginx']!r}: {wrong}")
    for where in ("path=/a*b|/a", "path=*", "path=/a|*"):
        odd = suggest(log, "--where", where, "--deny-keys", "10%")["suggestions"][0]
        check("location ~" not in odd["nginx"] and any(f"these lines do not say --where {where}. As they are, other requests are limited, too" in note for note in odd["notes"]), f"{where}: no location says it: {odd['nginx']}")


def test_spellings(check):
    """Whoever writes a path in another way does not pass by what is pasted: neither nginx's location nor the policy."""
    for asked, alike, others in (
            ("/login", ["/login", "/LOGIN", "//login", "/login/", "/login;x=1", "/%6cogin", "/x/..;/login", "/login%20", "/%20login", "/login.", "/./login", "/login?a"],
             ["/login2", "/login/reset", "/x/login", "/logi"]),
            ("/a.b/c", ["/a.b/c", "/A.B/C/", "/a.b;x/c", "/a.b%20/c;y"], ["/axb/c", "/a.b/c/d"]), ("/api/*", ["/api/", "/API/x", "/api;x/y"], ["/apis", "/x/api/"])):
        log = write("spellings.json", [(i / 7, f"198.51.100.{i % 200}", asked.replace("*", "x"), "GET") for i in range(9000)])
        it = suggest(log, "--where", f"path={asked}")["suggestions"][0]
        http, _, server = it["nginx"].partition("# in server { ... }:\n")
        server = server.replace("# Then what the location does", "empty_gif; add_header X-Here yes always; # Then what the location does") + "location / { empty_gif; }"
        with nginx_server.Nginx(http=http, server=server) as nginx:
            for path in (*alike, *others):
                check.equal("x-here" in nginx.get(path).fields, path in alike, f"nginx: {path} is {asked}")
        policy = FOLDER / "spellings.yaml"
        policy.write_text(re.sub('limit: "[^"]*"', 'limit: "fixed-window 1/d"', it["policy_file"]))
        for path in (*alike, *others):
            trace = write("spelled.json", [(i, "192.0.2.1", path, "GET") for i in range(2)])
            check.equal(replay("--policies", policy, trace)["denied"], path in alike, f"policy: {path} is {asked}: {it['policy']}")


BEFORE = ["", "/", "/;a", "/a;b/..;c", "/%20", "/.%20", "/.;x", "/x/..%20", "/x/%2e%2e;y", "/%20;a/b/..;", "/;a/;b", "/x", "/x;y", "/..."]
BEHIND = ["", "/", ";x", "%20", ".", "/;a", "/%20", "/.;", "/x/..;", "/x/..%20", "/;a/%20", "/x", "//", "?a", "/..;"]


def test_all_spellings(check):
    """What a policy reads as the path, nginx's location takes, too: all mixtures of what may stand around its parts."""
    for asked, words in (("/login", ["/login", "/%4cogin", "/%20login."]), ("/a.b/c", [f"/a.b{slash}c" for slash in ("/", ";x/", "%20/;y/", "/x/..;/", "/.%20//")]), ("/", [""])):
        paths = [path for before in BEFORE for word in words for behind in BEHIND if (path := before + word + behind).startswith("/")]
        log = write("spellings.json", [(i / 7, f"198.51.100.{i % 200}", asked, "GET") for i in range(9000)])
        it = suggest(log, "--where", f"path={asked}")["suggestions"][0]
        policy = FOLDER / "spellings.yaml"
        policy.write_text(re.sub('limit: "[^"]*"', 'limit: "fixed-window 1/d"', it["policy_file"]))
        trace = write("spelled.json", [(i, f"10.0.{n >> 8}.{n & 255}", path, "GET") for i in range(2) for n, path in enumerate(paths)])
        rows = weir("replay", "--policies", policy, "--decisions", trace, code=0).stdout.splitlines()[1:]
        denied = {row.split(",")[1] for row in rows if row.split(",")[3] == "0"}
        alike = [path for n, path in enumerate(paths) if f"10.0.{n >> 8}.{n & 255}" in denied]
        check(len(alike) > len(paths) / 4, f"{asked}: {len(alike)} of {len(paths)} spellings are alike")
        http, _, server = it["nginx"].partition("# in server { ... }:\n")
        server = server.replace("# Then what the location does", "empty_gif; add_header X-Here yes always; # Then what the location does") + "location ~ ^ { empty_gif; }"
        with nginx_server.Nginx(http=http, server=server) as nginx:
            missed = [path for path in alike if "x-here" not in nginx.get(path).fields]
            check.equal(missed, [], f"{asked}: nginx takes them")
            others = [path for path in ("/login2", "/login/x", "/x/login", "/x;y/login", "/logi", "/a.b", "/b/a.b/c", "/x") if "x-here" in nginx.get(path).fields]
            check.equal(others, [], f"{asked}: and no others")


def test_long_paths(check):
    """No long path makes nginx try so many ways to read it that it gives up: that would be status 500, and an [alert]."""
    asked = "/api/v1/login"
    log = write("spellings.json", [(i / 7, f"198.51.100.{i % 200}", asked, "GET") for i in range(9000)])
    http, _, server = suggest(log, "--where", f"path={asked}")["suggestions"][0]["nginx"].partition("# in server { ... }:\n")
    server = server.replace("# Then what the location does", "empty_gif; # Then what the location does") + "location ~ ^ { empty_gif; }"
    with nginx_server.Nginx(http=http, server=server) as nginx:
        for part, end in (("./;/api/;/v1/;", ""), ("./;/api/;/v1/;", "/x"), (";/api/v1/login/x/", ""), (";/api/v1/login/%20../", "x"), (";/;/;/api/", "")):
            path = "/" + part * (7800 // len(part)) + end
            check.equal(nginx.get(path).status in (200, 429), True, f"many times {part}, then {end}")


def test_other_spellings(check):
    """Requests in other spellings of the path, which the texts limit, too, are counted. In any case the path becomes the same texts."""
    log = write("case.json", [(i / 7, f"198.51.100.{i % 200}", ("/login", "/login", "/Login", "/login/", "/x")[i % 5], "GET") for i in range(9000)])
    told = {where: suggest(log, "--where", where)["suggestions"][0] for where in ("path=/login", "lower(path)=/login", "path=/login|/Login|/login/", "lower(path)=/LOGIN|/login/")}
    for where, more in zip(told, (3600, 1800, 0, 0)):
        it, said = told[where], " ".join(told[where]["notes"])
        check.contains(it["policy"], "match: {lower(path): [/login, /login/]}", where)
        check.equal(it["nginx"].count("location ~* "), 1, f"{where}: one location")
        check.equal("more requests have the path in another spelling" in said, more > 0, f"{where}: {said}")
        if more:
            check.contains(said, f"{more} more requests have the path in another spelling. These lines limit them, too: --where 'lower(path)=/login|/login/' also counts them.", where)
    check.equal(replay("token-bucket 1/s", log, "--where", "lower(path)=/login|/login/")["requests"], 7200, "it counts them")
    odd = suggest(log, "--where", "ip!=192.0.2.1", "--where", "path!=/x")["suggestions"][0]
    check(odd["nginx"].index("# This does not say --where ip!=192.0.2.1: ") < odd["nginx"].index("\nweir_limit"), f"a line that limits too much is marked: {odd['nginx']}")


def test_maps(check):
    """Conditions that are no location become maps: what is pasted limits the requests that --where selects, and no others."""
    log = FOLDER / "maps.json"
    log.write_text("".join(json.dumps({"time": T + i / 7, "ip": f"192.0.2.{i % 50}", "path": ("/", "/api/x", "/api/y", "/healthz")[i % 4], "method": "GET",
                                       "headers": {"X-Api-Key": f"k.{i % 3}"} if i % 5 else {}}) + "\n" for i in range(9000)))
    asked = [(path, {"X-Api-Key": key} if key else {}) for path in ("/", "/api/x", "/api/y", "/healthz") for key in ("k.1", "K.1", "k.11", "kx1", "", "k.2")]
    for where, limited in ((["path!=/healthz"], lambda path, key: path != "/healthz"), (["path!=/healthz|/api/*"], lambda path, key: path == "/"),
                           (["path=/api/*", "path!=/api/y"], lambda path, key: path == "/api/x"), (["header.x-api-key=k.1"], lambda path, key: key == "k.1"),
                           (["header.x-api-key!=k.1"], lambda path, key: key != "k.1"), (["header.x-api-key=k.1*|k.2", "method=GET", "path!=/"], lambda path, key: path != "/" and key in ("k.1", "k.11", "k.2")),
                           (["header.x-api-key=*"], lambda path, key: key), (["header.x-api-key!=*", "method!=POST"], lambda path, key: not key)):
        told = suggest(log, *(word for it in where for word in ("--where", it)))
        it = told["suggestions"][0]
        check(not any(note.startswith("nginx: these lines do not say") for note in it["notes"]) and "# This does not say" not in it["nginx"], f"{where}: all is said: {it['nginx']}")
        one = re.sub(r'"(token-bucket|sliding-counter) [^"]*"', '"fixed-window 1/d"', it["nginx"]).replace("key=", "key=$http_x_row")
        http, _, server = one.partition("# in server { ... }:\n")
        http, line = (http, "") if server else (http.partition("weir_limit ")[0], "weir_limit " + http.partition("weir_limit ")[2])
        with nginx_server.Nginx(http=http, server=line + server.replace("# Then what", "empty_gif; # Then what") + " location / { empty_gif; }") as nginx:
            check("[warn]" not in nginx.errors(), f"{where}: nginx does not warn: {nginx.errors()}")
            got = [nginx.get(path, {**headers, "X-Row": str(row)}).status for row, (path, headers) in enumerate(asked) for _ in range(2)][1::2]
            check.equal(got, [429 if limited(path, headers.get("X-Api-Key", "")) else 200 for path, headers in asked], f"{where}: {it['nginx']}")


def test_warnings(check):
    """What is not expected of a limit is said where it is suggested."""
    log = FOLDER / "keys.json"
    log.write_text("".join(json.dumps({"time": T + i, "ip": f"192.0.2.{i % 50}", "path": "/", "headers": {"X-Api-Key": f"k{i % 40 if i % 3 else 7}"}}) + "\n" for i in range(9000)))
    for key, noted in (("header.x-api-key", True), ("ip", False)):
        for it in suggest(log, "--key", key)["suggestions"]:
            check.equal(any("Each value that a client invents has a fresh limit" in note for note in it["notes"]), noted, f"--key {key}: {it['notes']}")
    log = FOLDER / "fields.json"
    log.write_text("".join(json.dumps({"time": T + i, "ip": f"192.0.2.{i % 50}", "path": "/", "api_key": f"k{i % 40}", "my": {"X_Token": f"t{i % 40}"}}) + "\n" for i in range(9000)))
    for key, said in (("api_key", "--key header.x-api-key --field header.x-api-key=api_key"), ("ip, api_key", '--key "ip, header.x-api-key" --field header.x-api-key=api_key'),
                      ("my.X_Token", "--key header.x-token --field header.x-token=my.X_Token"), ("path, lower(api_key)", None), ("ip", None)):
        it = suggest(log, "--key", key, "--deny-keys", "50%")["suggestions"][0]
        check.equal([note.partition("say which: ")[2] for note in it["notes"] if "If it is a header field" in note], [f"{said}. Otherwise see Keys in docs/NGINX.md"] if said else [], f"--key {key}")
        if said:
            told = suggest(log, "--deny-keys", "50%", *shlex.split(said))["suggestions"][0]
            check(told["limits"] == it["limits"] and (key != "api_key" or "$http_x_api_key" in told["nginx"]), f"{said}: as it is, it works: {told['nginx']}")
    for it in suggest(SAMPLE)["suggestions"]:
        check.equal("Never more than 50 at once; but whoever uses them up at the end of an hour of the clock gets as many during the next: up to 100 within an hour. " in it["why"],
                    it["limits"] == "sliding-counter 50/h", f"{it['limits']}: {it['why']}")
    check.contains(weir("replay", "token-bucket 1/s", SAMPLE, "--where", "path=//login").stderr, 'invalid condition "path=//login": in paths // is read as /; write /login', "//")


def test_statuses(check):
    """What is selected by its answers is charged by its answers."""
    told = suggest(SAMPLE, "--where", "status=401", "--where", "path=/login")["suggestions"][0]
    check(told["policy"] is None and "settle the charge to 0 after other answers" in told["notes"][0], f"a policy cannot: {told['notes']}")
    check.contains(told["why"], "may get 5 such answers at once", "the reason")
    http, _, server = told["nginx"].partition("# in server { ... }:\n")
    server = server.replace("# Then what the location does", "rewrite ^ /$arg_to break; proxy_pass http://127.0.0.1:{port}; # Then what the location does")
    with nginx_server.Nginx(http=http, server=server + "location /right { return 204; } location /wrong { return 401; }") as nginx:
        check("[warn]" not in nginx.errors(), "nginx does not warn")
        seen = [nginx.get(f"/login?to={to}").status for to in ("right", "wrong") for _ in range(8)]
        check.equal(seen, [204] * 8 + [401] * 5 + [429] * 3, "only failures count")
    for where, said in (("status=401", " name=status-401 on=401;"), ("status=401|4XX|5*", " on=401,4xx,5xx;"), ("status!=200|3xx", " on=!200,!3xx;")):
        for it in suggest(SAMPLE, "--where", where)["suggestions"]:
            check.contains(it["nginx"].replace("-window", ""), said, where)
            check.equal(nginx_server.Nginx.check(it["nginx"] + "server { listen {port}; root {folder}; }")[0], 0, f"{where}: nginx takes {it['nginx']}")
    for where in (["status=40*"], ["status=4xx", "status!=404"], ["status=4?1|401"]):
        words = [word for it in where for word in ("--where", it)]
        for it in json.loads(weir("suggest", "--json", SAMPLE, *words).stdout)["suggestions"]:
            check(it["nginx"] is None and it["policy"] is None and "on= cannot say which answers these are" in it["notes"][1], f"{where}: no text that limits others")


def test_names(check):
    """Names of fields that no line has are told, with those that there are."""
    log = FOLDER / "nested.json"
    log.write_text("".join(json.dumps({"ts": T + i, "client": {"addr": f"192.0.2.{i % 9}", "tls": {"v": 1}}, "http": {"target": "/login", "tags": ["a"]}, "deep": {"a": {"b": {"c": {"d": 1}}}}})
                           + "\n" for i in range(300)))
    fields = "ts, client.addr, client.tls.v, http.target, http.tags, deep.a.b.c.d"
    check.contains(weir("replay", "token-bucket 1/s", log).stdout, f"the first line has the fields {fields};", "members of members")
    for command in (["suggest"], ["replay", "token-bucket 1/s"]):
        got = weir(*command, log, "--field", "ip=client.address")
        check.equal((got.returncode, got.stdout), (2, ""), f"{command[0]}: a name that no line has")
        check.contains(got.stderr, 'invalid --field "ip=client.address": no line of the log has client.address; the first line has ts, client.addr', f"{command[0]}: says so")
    for key, noted in (("user", True), ("ip", False)):
        told = weir("suggest", log, "--field", f"{key}=client.addr", "--key", key).stdout
        check.contains(told, "user:$remote_user" if noted else "key=clients:$weir_network ", f"--key {key}: a variable")
        check.equal("the limit applies to nobody" in " ".join(told.split()), noted, f"--key {key}: whether the variable may be another value")
    where = ["--field", "ip=client.addr", "--where", "path=/login"]
    out = weir("replay", "token-bucket 1/s", log, *where).stdout
    check.contains(out, f"no line has path, so no line matches --where path=/login\n    the first line has the fields {fields};\n    --field path=NAME says which one it is\n", "--where")
    check.equal(replay("token-bucket 1/s", log, *where)["log"]["unseen_where"], "path=/login", "--where: JSON")
    right = replay("token-bucket 1/s", log, *where, "--field", "path=http.target")
    check.equal((right["requests"], right["log"]["unseen_where"]), (300, None), "as it says: all are found")
    check("no line has" not in weir("replay", "token-bucket 1/s", log, "--field", "ip=client.addr", "--where", "user!=*").stdout, "NAME!=* needs no field")
    check.contains(weir("replay", "token-bucket 1/s", log, "--field", "ip=client.addr", "--where", "clint.addr!=x").stdout, "--where can name one that lines have", "a name that is not one of ours")
    long = FOLDER / "long.json"
    long.write_text(json.dumps({"ts": T, **{f"name-{i}" * 5: i for i in range(99)}, "e\033[31m": {"\u009b1m": 1}}) + "\n")
    out = weir("replay", "token-bucket 1/s", long).stdout
    check.contains(out, ", ...;", "many names: the list is cut, and says so")
    check(not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out), "masked")


def test_hints(check):
    """A --where that no line fulfils names what lines have. The page names the filter."""
    rows = [(i / 7, f"198.51.100.{i % 200}", ("/api/items/3", "/api/items/4", "/Login", "/x/\u009b31m")[i % 4], "POST" if i % 3 else "GET") for i in range(900)]
    log = write("hints.json", rows)
    for where, said in {("path=/api",): "no line has path=/api; 450 lines are below it, like /api/items/3: use path=/api/*", ("path=/login",): "no line has path=/login; lines have /Login",
                        ("path=/api/items/3/",): "lines have /api/items/3", ("method=PUT",): "no line has method=PUT; lines have POST, GET", ("method=post",): "lines have POST",
                        ("ip=10.0.0.0/8",): "no line has ip=10.0.0.0/8; lines have 198.51.100.", ("method!=GET|POST",): "every line has what method!=GET|POST leaves out",
                        ("path=/api/*", "path=/Login"): "each of these has lines, but no line has all of them: path=/api/* and path=/Login"}.items():
        words = [word for it in where for word in ("--where", it)]
        for command in (["replay", "token-bucket 1/s"], ["suggest"]):
            out = weir(*command, log, *words).stdout
            check.contains(" ".join(out.split()), f"hint {said}" if said.startswith(("no", "every", "each")) else said, f"{command[0]} {where}")
            check(not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out), f"{command[0]} {where}: masked")
        check.contains(replay("token-bucket 1/s", log, *words)["log"]["hint"], said, f"{where}: JSON")
    out = weir("replay", "token-bucket 1/s", log, "--where", "path=/api").stdout
    check(out.endswith("token-bucket 1/s\n  requests                0  of 0 keys over 0s\n"), f"no table of zeros: {out}")
    check.equal(replay("token-bucket 1/s", log, "--where", "path=/Login")["log"]["hint"], None, "some lines match: no hint")
    page = FOLDER / "hints.html"
    words = ["--where", "path=/Login", "--where", "agent!=<b>", "--report", page, log]
    for command in (["replay", "token-bucket 1/s"], ["suggest"]):
        weir(*command, *words, code=0)
        check.contains(page.read_text(), f"{log} (json)<br>only requests with <code>path=/Login</code> and <code>agent!=&lt;b&gt;</code>", f"{command[0]}: the page says of which requests")
    weir("replay", "token-bucket 1/s", "--report", page, "--where", "path=/api", log, code=0)
    check.contains(page.read_text(), "No line matches --where: no line has path=/api; 450 lines", "the page has the hint")


def run_shell(command, folder):
    path = f"{pathlib.Path(WEIR).resolve().parent}:{os.environ['PATH']}"
    return subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, timeout=600, env={**weir_server.environment(), "PATH": path}, text=True)


def test_command(check):
    """The replay that is printed runs as it is, and shows the suggestions."""
    folder = FOLDER / "it's a folder"
    folder.mkdir()
    log = folder / "a $(log) 'x'.json"
    shutil.copy(write("command.json", [(i / 7, f"198.51.100.{i % 200}", "/a b", "POST") for i in range(9000)]), log)
    for words in ([SAMPLE], [SAMPLE, "--spare", OFFICE], [SAMPLE, "--spare", OFFICE, "--spare", "198.51.100.0/24", "--where", "path!=/login", "--no-spread", "--disorder", "1m"],
                  [SAMPLE, "--protect", "20/s"], [log, "--where", "path=/a b", "--key", "ip, path", "--memory", "64m", "--field", "ip=ip"]):
        told = suggest(*words)
        out = weir("suggest", *words, code=0).stdout
        check.equal(len(told["replay"]), len({it["total"] for it in told["suggestions"]}), f"{words[1:]}: a command for each kind of key")
        printed = re.findall(r"^  (weir replay (?:.*\\\n)*.*)$", out, re.M)
        check.equal([" ".join(command.replace("\\\n", " ").split()) for command in printed], [" ".join(command.split()) for command in told["replay"]], f"{words[1:]}: in lines, it is the same")
        limits = []
        for command in printed:
            (folder / "report.html").unlink(missing_ok=True)
            got = run_shell(command + " --json", folder)
            check.equal(got.returncode, 0, f"{command}: {got.stderr}")
            check((folder / "report.html").exists(), f"{command}: writes the page")
            limits += [it["limits"] for it in json.loads(got.stdout)["candidates"]]
        check.equal(sorted(limits), sorted(it["limits"] for it in told["suggestions"]), f"{words[1:]}: all suggestions")
    piped = subprocess.run([str(WEIR), "suggest", "--json"], input=log.read_bytes(), capture_output=True, timeout=600, env=weir_server.environment())
    check(json.loads(piped.stdout)["replay"][0].endswith(" LOG"), "a pipe has no name")
    bad = FOLDER / "e\033]0;pwned\007vil.json"
    shutil.copy(log, bad)
    check("\033" not in weir("suggest", bad, code=0).stdout, "names of files are masked")


def test_help(check):
    check("1  denied" not in weir("replay", "--help", code=0).stdout, "replay does not end with 1")


TESTS = [test_first, test_room_in_other_logs, test_spared, test_replay_spare, test_heavy_key, test_goal, test_why, test_nginx, test_spellings, test_all_spellings, test_long_paths, test_other_spellings, test_maps, test_warnings, test_statuses, test_names, test_hints, test_command, test_help]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
