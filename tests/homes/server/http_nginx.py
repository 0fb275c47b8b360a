#!/usr/bin/env python3
"""A real nginx that asks the server by auth_request, with deny_status=403 and Retry-After passed on."""
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from lib import checks, http_client, ports, weir_server
from lib.http_client import request
from http_api import asked
from http_policies import POLICIES

NGINX = """
daemon off; master_process on; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 200; }}
http {{
    access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    upstream weir {{ server 127.0.0.1:{weir}; keepalive 8; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            auth_request /weir;
            auth_request_set $weir_retry $upstream_http_retry_after;
            auth_request_set $weir_ratelimit $upstream_http_ratelimit;
            auth_request_set $weir_policy $upstream_http_ratelimit_policy;
            auth_request_set $weir_reason $upstream_http_weir_reason;
            error_page 403 = @refused;
            add_header RateLimit $weir_ratelimit always;
            add_header RateLimit-Policy $weir_policy always;
            root {folder};
            try_files /page =404;
        }}
        location = /weir {{
            internal;
            proxy_pass http://weir/v1/take?deny_status=403;
            proxy_pass_request_body off;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Content-Length "";
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Original-URI $request_uri;
            proxy_set_header X-Original-Method $request_method;
            proxy_set_header X-Forwarded-Host $http_host;
        }}
        location @refused {{
            default_type application/problem+json;
            add_header Retry-After $weir_retry always;
            add_header RateLimit $weir_ratelimit always;
            if ($weir_reason = limit) {{
                return 429 '{{"title":"Too Many Requests"}}';
            }}
            return 403 '{{"title":"Forbidden"}}';
        }}
    }}
}}
"""


class Nginx:
    def __init__(self, weir_port):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-nginx-"))
        self.port = ports.take()
        (self.folder / "page").write_text("the page\n")
        (self.folder / "nginx.conf").write_text(NGINX.format(folder=self.folder, weir=weir_port, port=self.port))
        self.folder.chmod(0o755)

    def __enter__(self):
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        self.process = subprocess.Popen([program, "-c", str(self.folder / "nginx.conf"), "-e",
                                         str(self.folder / "error.log")], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + weir_server.START_SECONDS
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.02)
        self.__exit__()
        raise RuntimeError("nginx does not start")

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
        try:
            self.process.wait(weir_server.STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def test_nginx(check):
    """auth_request with deny_status=403, as the manual has it: clients see 429 with Retry-After."""
    with asked(policies=POLICIES) as (server, weir), Nginx(server.port) as nginx:
        with http_client.Client(nginx.port) as client:
            for i in range(3):
                answer = client.ask(request("GET", "/ip"))
                check.equal((answer.status, answer.body), (200, b"the page\n"), f"let through, {i}")
                check.equal(answer.fields.get("ratelimit"), f'"by-address";r={2 - i};t=2800', "RateLimit is passed on")
                check.equal(answer.fields.get("ratelimit-policy"), '"by-address";q=3;w=3600', "RateLimit-Policy too")
            limited = client.ask(request("GET", "/ip"))
            check.equal((limited.status, limited.fields.get("retry-after"), limited.json),
                        (429, "2800", {"title": "Too Many Requests"}), "limited: 429 and Retry-After")
            check.equal(limited.fields.get("ratelimit"), '"by-address";r=0;t=2800', "RateLimit of a denial")
            spoofed = client.ask(request("GET", "/ip", {"x-forwarded-for": "9.9.9.9"}))
            check.equal(spoofed.status, 200, "behind another proxy, an address that was believed for it")
            check.equal(client.ask(request("GET", "/elsewhere")).status, 200, "what no policy is about")
            for _ in range(3):
                check.equal(client.ask(request("PUT", "/m", {"host": "shop.example"}, b"x")).status, 405, "nginx's own 405")
            check.equal(client.ask(request("PUT", "/m", {"host": "shop.example"}, b"x")).status, 429,
                        "the method and host are the client's")
            check.equal(client.ask(request("PUT", "/m", {"host": "other.example"}, b"x")).status, 405, "another host")
            check.equal(client.ask(request("GET", "/strict")).status, 403, "denied for want of a user")
            check.equal(client.ask(request("GET", "/strict")).fields.get("retry-after"), None, "which no waiting helps")
        weir.post("/v1/reset", {"attributes": {"path": "/ip", "ip": "127.0.0.1"}})
        with http_client.Client(nginx.port) as client:
            client.send(request("GET", "/ip") * 60)
            statuses = [client.read().status for _ in range(60)]
            check.equal((statuses.count(200), statuses.count(429)), (3, 57), "a burst through keep-alive upstreams")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
