#!/usr/bin/env python3
"""A server that pretends to be a language model and streams its answers within the budgets of `policies.yaml`.

    weir serve --policies examples/budgets/policies.yaml
    examples/budgets/chat.py [--weir HOST:PORT] [--listen PORT]     serves
    examples/budgets/chat.py [--weir HOST:PORT] --demo              asks itself three times, and tells what happened

    POST /v1/chat {"user": "ann", "org": "acme", "prompt": 40, "answer": 300}

prompt and answer are numbers of tokens: how long the question is, and how long this model's answer would be. The answer
streams one word per token. Its last line is JSON: how it ended ("stop", or "budget": cut off) and what it cost.
"""
import argparse
import http.client
import http.server
import json
import math
import sys
import threading

from weir_budget import Budget, Denied

ESTIMATE = 1000  # what an answer may need at first, beside its prompt
ENOUGH = 100     # with less than this it does not begin
MORE = 500       # what it asks for when that is used up
WORDS = 50       # per write


class Chat(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        ask = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        budget = Budget(self.server.weir, {"path": self.path, "user": ask["user"], "org": ask["org"]})
        try:
            budget.start(ask["prompt"] + ESTIMATE, ask["prompt"] + ENOUGH)
        except Denied as denied:
            budget.close()
            self.refuse(denied)
            return
        gone = False
        try:
            self.stream(budget, ask)
        except ConnectionError:  # the caller went away: what was written is charged
            gone = self.close_connection = True
        finally:
            budget.finish()
        if not gone:
            self.put("")  # the answer ends when all is settled: the caller's next question finds what is left

    def stream(self, budget, ask):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        budget.use(ask["prompt"])
        words, end = [], "stop"
        for i in range(ask["answer"]):
            if budget.left == 0 and budget.more(MORE) == 0:
                end = "budget"
                break
            budget.use(1)
            words.append(f"word{i}")
            if len(words) == WORDS:
                self.put(" ".join(words) + "\n")
                words = []
        self.put(" ".join(words) + "\n" + json.dumps({"end": end, "tokens": budget.used}) + "\n")

    def put(self, text):
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())

    def refuse(self, denied):
        body = json.dumps({"end": "denied", "retry_after": denied.retry_after}).encode()
        self.send_response(429)
        if denied.retry_after is not None:
            self.send_header("Retry-After", str(math.ceil(denied.retry_after)))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, port, weir):
        super().__init__(("127.0.0.1", port), Chat)
        self.weir = weir

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a caller that went away
            super().handle_error(request, client_address)


def chat(port, **ask):
    """What an answer ended with, and its words."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/chat", json.dumps(ask))
    *text, last = connection.getresponse().read().decode().splitlines()
    connection.close()
    return json.loads(last), " ".join(text).split()


def demo(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for answer in (300, 6000, 300):
        end, words = chat(server.server_address[1], user="ann", org="acme", prompt=40, answer=answer)
        print(f"an answer of {answer}: {end['end']} after {len(words)} words, {end.get('tokens', 0)} tokens used")
    server.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", default="127.0.0.1:7311")
    parser.add_argument("--listen", type=int, default=8000)
    parser.add_argument("--demo", action="store_true")
    options = parser.parse_args()
    server = Server(0 if options.demo else options.listen, options.weir)
    if options.demo:
        demo(server)
    else:
        print(f"http://127.0.0.1:{server.server_address[1]}/v1/chat", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
