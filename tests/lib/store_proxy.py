"""A server between client and server that does harm when told to: passes on, holds back, cuts off, lies."""
import socket
import threading
import time


class Proxy:
    """mode is "pass", "slow" (replies come `delay` late), "hold" (replies never come), "cut" (the connection
    ends within a reply) or "garbage" (bytes that are no reply) or "wrap" (errors as Redis 6.2 words those of scripts); cut and garbage happen once, then pass."""

    def __init__(self, port):
        self.target, self.mode, self.delay = port, "pass", 0.0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.connections = self.held = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)  # accept() in another thread would keep it open
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            self.connections += 1
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.pump, args=(server, client, True), daemon=True).start()

    def pump(self, source, sink, replies):
        try:
            while data := source.recv(65536):
                if not replies:
                    self.ask(data)
                    data = self.change(data)
                if not (replies and self.harm(sink, data)):
                    sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def ask(self, data):
        """For those who want to see what is asked before it is passed on."""

    def change(self, data):
        """For those who want something else to be asked."""
        return data

    def harm(self, sink, data):
        """True: the data was dealt with."""
        if self.mode == "slow":
            time.sleep(self.delay)
        elif self.mode == "hold":
            self.held += 1
            return True
        elif self.mode == "cut":
            self.mode = "pass"
            sink.sendall(data[:max(1, len(data) // 2)])
            raise OSError("cut")
        elif self.mode == "garbage":
            self.mode = "pass"
            sink.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return True
        elif self.mode == "wrap" and data.startswith(b"-") and b" script: " in data:
            error = data[1:].split(b" script: ")[0]
            sink.sendall(b"-ERR Error running script (call to f_0123): @user_script:9: @user_script: 9: -" + error + b"\r\n")
            return True
        return False
