"""What stands behind an nginx that is a proxy."""
import socket
import threading


class Backend:
    """A small HTTP/1.1 server for proxy_pass that answers when it is told to: what() is called in the request's
    thread with its head (text) and gives an Answer's bytes; it may wait. Without: 200 at once.

        with Backend(lambda head: gate.wait(60) and Backend.answer()) as backend: … http://127.0.0.1:{backend.port}
    """

    def __init__(self, what=None):
        self.what = what or (lambda head: self.answer())
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=511)
        self.port = self.socket.getsockname()[1]
        self.heads, self.open = [], True

    @staticmethod
    def answer(status="200 OK", fields="", body=b"ok\n"):
        """Bytes of an answer; `fields` are whole lines."""
        return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{fields}\r\n".encode() + body

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.open = False
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes accept()
        except OSError:
            pass
        self.socket.close()

    def accept(self):
        while self.open:
            try:
                connection = self.socket.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            try:
                while head := self.head(stream):
                    self.heads.append(head)
                    connection.sendall(self.what(head))
                    if "connection: close" in head.lower() or " HTTP/1.0\r\n" in head:
                        return
            except OSError:
                pass

    @staticmethod
    def head(stream):
        lines = []
        while (line := stream.readline()) not in (b"", b"\r\n"):
            lines.append(line.decode("latin-1"))
        length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0)
        stream.read(length)
        return "".join(lines)
