"""A proxy on loopback that leads every host to one scripted service, for programs that insist on a name."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def leading_to(port: int) -> Iterator[tuple[str, list[str]]]:
    """Serve a proxy while the block lasts; yields its address, and the hosts that were asked for."""
    hosts: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            words = self.rfile.readline().decode().split()
            while self.rfile.readline().strip():
                pass
            hosts.append(words[1])
            with socket.create_connection(("127.0.0.1", port)) as target:
                self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_pump, args=(target, self.connection), daemon=True)
                back.start()
                _pump(self.connection, target)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", hosts
        finally:
            server.shutdown()
            thread.join()
