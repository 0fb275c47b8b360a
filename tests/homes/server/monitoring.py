#!/usr/bin/env python3
"""packaging/monitoring and packaging/kubernetes: what a running server prints has every name that dashboard and rules ask for, with
labels and values that exist; promtool reads and tries the rules; the manifests say what the server understands.

    tests/homes/server/monitoring.py [NAME …]

promtool (Debian: prometheus) and Python's yaml (Debian: python3-yaml) must be there.
"""
import json
import re
import subprocess
import sys

from lib import checks, http_client, redis_server, weir_server
from lib.build import ROOT

MONITORING = ROOT / "packaging/monitoring"
NAME = re.compile(r"(?<![:\w])((?:weir|process)_[a-z0-9_]+)(\{[^}]*\})?")
MATCHER = re.compile(r'([a-z_]+)(=~|!=|!~|=)"([^"]*)"')
POLICIES = """version: 1
policies:
  - name: api
    match: {path: /api/*}
    key: user
    limits:
      - {name: all, limit: fixed-window 1/366d}
      - {name: strict, limit: fixed-window 1/366d, shadow: true}
"""
ELSEWHERE = {"job", "instance", "le"}  # labels that Prometheus adds, or every histogram has


def series_of(text):
    """{name: {label: values}} of an exposition; of a counter in OpenMetrics likewise."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        name, _, rest = line.partition(" ")[0].partition("{")
        labels = found.setdefault(name, {})
        for label, value in re.findall(r'([a-z_]+)="([^"]*)"', rest):
            labels.setdefault(label, set()).add(value)
    return found


def exported():
    """What servers print: one with TLS that has decided a few things, and one with slices."""
    server = weir_server.Server("--access-log log --listen-tls 127.0.0.1:0 --tls-cert cert.pem --tls-key key.pem",
                                policies=POLICIES)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                    "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=localhost"], cwd=server.folder, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with server, http_client.Client(server.port) as client:
        for _ in range(2):
            client.get("/v1/take", attr_path="/api/x", attr_user="ann")
        text = client.get("/metrics").body.decode()
    with redis_server.Server() as redis, weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?slices=5%") as sliced, \
            http_client.Client(sliced.port) as client:
        return series_of(text + client.get("/metrics").body.decode())


def check_expression(check, where, text, known):
    """Every name of an expression is printed; every label is one of it; every value that is compared with exists."""
    names = NAME.findall(text)
    if "nginx_weir_" in text:  # the test of weir_info knows its names
        return
    check(bool(names) or "up{" in text or ":" in text, f"{where}: names no metric: {text}")
    for name, matchers in names:
        if not check(name in known, f"{where}: {name} is not in /metrics"):
            continue
        for label, operator, value in MATCHER.findall(matchers):
            if label in ELSEWHERE:
                continue
            values = known[name].get(label)
            if not check(values is not None, f"{where}: {name} has no label {label}"):
                continue
            for each in value.split("|") if operator in ("=~", "!~") else [value]:
                check(each in values, f"{where}: {label} of {name} is never {each!r}, but {sorted(values)}")
    for labels in re.findall(r"\b(?:by|without) ?\(([^)]*)\)", text):
        for label in re.split(r", *", labels):
            check(label in ELSEWHERE or any(label in known.get(name, {}) for name, _ in names),
                  f"{where}: no metric there has the label {label}")


def test_dashboard(check):
    known = exported()
    dashboard = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    identities = [panel["id"] for panel in dashboard["panels"]]
    check.equal(len(identities), len(set(identities)), "dashboard: each panel has an id of its own")
    places = set()
    for panel in dashboard["panels"]:
        where = panel["gridPos"]
        cells = {(x, y) for x in range(where["x"], where["x"] + where["w"]) for y in range(where["y"], where["y"] + where["h"])}
        check(where["x"] + where["w"] <= 24 and not cells & places, f"dashboard: {panel['title']} lies on another panel")
        places |= cells
        if panel["type"] == "row":
            continue
        check(bool(panel["targets"]), f"dashboard: {panel['title']} shows something")
        for target in panel["targets"]:
            check_expression(check, f"dashboard: {panel['title']}", target["expr"], known)
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                check(re.search(rf"by \([^)]*\b{label}\b", target["expr"]) or label == "instance",
                      f"dashboard: {panel['title']} has no label {label} left")
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            check_expression(check, f"dashboard: variable {variable['name']}", variable["query"]["query"], known)


def test_expressions_are_prometheus(check):
    """promtool reads every expression of the dashboard, as rules."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    rules = [{"record": f"panel:{i}", "expr": text.replace("$__rate_interval", "5m")} for i, text in enumerate(expressions)]
    told = promtool("check", "rules", "/dev/stdin", text=json.dumps({"groups": [{"name": "all", "rules": rules}]}))
    check.equal((told.returncode, f"{len(rules)} rules found" in told.stdout), (0, True), f"promtool: {told.stdout}")


def promtool(*words, text=None):
    return subprocess.run(["promtool", *words], cwd=MONITORING, input=text, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)


def test_rules(check):
    for words in (("check", "rules", "rules.yaml"), ("test", "rules", "rules_test.yaml")):
        told = promtool(*words)
        check.equal(told.returncode, 0, f"promtool {words}: {told.stdout}")
    known = exported()
    for group in load_yaml(MONITORING / "rules.yaml")[0]["groups"]:
        for rule in group["rules"]:
            check_expression(check, f"rules: {rule.get('alert') or rule['record']}", rule["expr"], known)
            if "alert" in rule:
                check("summary" in rule["annotations"] and "severity" in rule["labels"], f"rules: {rule['alert']} says what")


def load_yaml(path):
    """All documents of a file, by Debian's python3-yaml, whatever Python runs this."""
    code = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)"
    with path.open(encoding="utf-8") as text:
        return json.loads(subprocess.run(["/usr/bin/python3", "-c", code], stdin=text, stdout=subprocess.PIPE, check=True).stdout)


def test_kubernetes(check):
    """Names within the manifests meet, probes are paths of the server, its arguments start one."""
    documents = {it["kind"]: it for it in load_yaml(ROOT / "packaging/kubernetes/weir.yaml")}
    check.equal(sorted(documents), ["ConfigMap", "Deployment", "PodDisruptionBudget", "Service"], "kubernetes: what is there")
    pods = documents["Deployment"]["spec"]
    labels = pods["template"]["metadata"]["labels"].items()
    for kind, selector in (("Deployment", pods["selector"]["matchLabels"]), ("Service", documents["Service"]["spec"]["selector"]),
                           ("PodDisruptionBudget", documents["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])):
        check(selector.items() <= labels, f"kubernetes: {kind} selects the pods")
    pod = pods["template"]["spec"]
    container = pod["containers"][0]
    ports = {port["name"] for port in container["ports"]}
    check(documents["Service"]["spec"]["ports"][0]["targetPort"] in ports, "kubernetes: the service's port is the container's")
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    check.equal(mounts, {volume["name"] for volume in pod["volumes"]}, "kubernetes: volumes are mounted")
    delay = int(container["args"][container["args"].index("--shutdown-delay") + 1].rstrip("s"))
    check(pod["terminationGracePeriodSeconds"] > delay + 10, "kubernetes: time to drain is left")
    peers = re.search(r"peers=(\d+)", " ".join(container["args"]))
    check.equal(int(peers[1]), pods["replicas"], "kubernetes: peers is the number of replicas")
    files = {"policies.yaml": documents["ConfigMap"]["data"]["policies.yaml"], "token": "a\n", "admin-token": "b\n"}
    words = [{"/etc/weir/policies.yaml": "policies.yaml", "/run/secrets/weir/token": "token",
              "/run/secrets/weir/admin-token": "admin-token", f"{delay}s": "1ms"}.get(word, word) for word in container["args"]]
    words = [re.sub(r"//[^/?]*", "//127.0.0.1:1", word) if word.startswith("redis:") else word for word in words]
    with weir_server.Server(words, files=files, env={"WEIR_RECEIPT_SECRET": "x" * 32}) as server, \
            http_client.Client(server.port) as client:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            check.equal(client.get(container[probe]["httpGet"]["path"]).status, 200, f"kubernetes: {probe}")


if __name__ == "__main__":
    sys.exit(checks.run([test_dashboard, test_expressions_are_prometheus, test_rules, test_kubernetes], sys.argv[1:]))
