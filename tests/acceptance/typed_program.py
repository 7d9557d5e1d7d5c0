"""The program as a command that a shell finds on PATH, forked from a process that has loaded it.

The pages have about a hundred commands; a new interpreter for each would take longer than what they do. A
small client passes its arguments, folder, environment and streams to a server, which forks for each command
and answers with the exit code. Several commands may run at the same time.
"""

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.acceptance.preloaded import ROOT, become_program, exactly, preload

NAME = "autopilot-multi"
_CLIENT = """#!{python} -IS
import json, os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
request = {{"argv": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}}
request = json.dumps({{**request, "landlocks": 0, "own_session": False}}).encode()
socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2])
connection.sendall(request)
code = int.from_bytes(connection.recv(4), "big", signed=True)
os._exit(code if code >= 0 else 128 - code)
"""


@cache
def folder_with_program() -> Path:
    """Start the server, once, and return a folder for PATH that holds the client."""
    folder = Path(tempfile.mkdtemp(prefix="typed-"))
    address = folder / "socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    listener.listen(16)
    with listener:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.typed_program", str(listener.fileno())],
            cwd=ROOT,
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
        )

    def close() -> None:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)

    atexit.register(close)
    client = folder / "bin" / NAME
    client.parent.mkdir()
    client.write_text(_CLIENT.format(python=sys.executable, address=str(address)))
    client.chmod(0o755)
    return client.parent


def _serve(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not os.fork():
            listener.close()
            _answer(connection)
        connection.close()


def _answer(connection: socket.socket) -> None:
    head, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    request = json.loads(exactly(connection, int.from_bytes(head, "big")))
    pid = os.fork()
    if not pid:
        connection.close()
        become_program(request, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    connection.sendall(code.to_bytes(4, "big", signed=True))
    os._exit(0)


if __name__ == "__main__":
    preload()
    _serve(socket.socket(fileno=int(sys.argv[1])))
