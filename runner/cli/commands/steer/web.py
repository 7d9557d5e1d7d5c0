"""Serve a page that shows the run live, and from which it can be steered, to browsers on this machine.

The address that it prints has a token: with it, others can do here all that you can do. Without RUN, the
page follows the active run, else the newest. It can be opened before, during and after runs, and is served
until Ctrl-C.
"""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    import socket

    from runner.serve.web.server import Web

EXAMPLE = "autopilot-multi web --open"

LOOK_SECONDS = 0.5
MOST_PORT = 65535


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `web`."""
    parser.add_argument("run", nargs="?", metavar="RUN", help="the id of a run or its first characters")
    parser.add_argument(
        "--port", metavar="N", type=_port, help="listen on this port (default: 8717, or any if it is taken)"
    )
    parser.add_argument(
        "--host",
        metavar="HOST",
        default="127.0.0.1",
        help="listen on this address (default: 127.0.0.1, which only this machine can reach)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in your browser")
    parser.add_argument(
        "--while", dest="beside", metavar="PID", type=int, help="serve only while this process runs"
    )
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Serve until Ctrl-C, or until the process of --while has ended."""
    from runner.serve.web.access.address import published
    from runner.serve.web.access.guard import LOOPBACK
    from runner.serve.web.server import listen, make_web, url_of

    if arguments.beside is not None and arguments.open and _open_served(Path(arguments.directory), output):
        return 0
    with listen(arguments.host, arguments.port) as listener:
        port = listener.getsockname()[1]
        web = make_web(Path(arguments.directory), run=_named(arguments), host=arguments.host, port=port)
        url = url_of(arguments.host, port, web.keys)
        if arguments.host not in LOOPBACK:
            output.warn(
                f"others can reach {arguments.host}, and read the token on the way: the page is not encrypted"
            )
        with published(web.source.paths.common_dir, url) as door:
            if arguments.beside is None:  # otherwise that process says it, and no log has the token
                output.document({"url": url, "port": port, "pid": os.getpid()})
                output.answer(url)
                output.say("Ctrl-C ends the page; a run continues without it")
            if arguments.open:
                _open(door, output)
            return _serve(web, listener, arguments.beside)


def _serve(web: "Web", listener: "socket.socket", beside: int | None) -> int:
    import signal

    import trio

    from runner.serve.web.server import serve_web

    async def until() -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            if beside is None:
                await received.__anext__()
            while beside is not None and _runs(beside):
                with trio.move_on_after(LOOK_SECONDS):
                    await received.__anext__()
                    return

    trio.run(serve_web, web, listener, until)
    return 0


def _named(arguments: argparse.Namespace) -> str:
    """Return the run that was named, or raise if there is none."""
    if not arguments.run:
        return ""
    from runner.run.control.reader import RunReader

    with RunReader(arguments.directory, arguments.run) as reader:
        return reader.run_id


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


def _open_served(directory: Path, output: Output) -> bool:
    """Open the page that is served already; return whether there is one."""
    from isolation.paths import find_repository
    from runner.serve.web.access.address import door_path, read_address

    common_dir = find_repository(directory).common_dir
    served = read_address(common_dir)
    if served is not None:
        _open(door_path(common_dir, served.pid), output)
    return served is not None


def _open(door: Path, output: Output) -> None:
    import webbrowser

    # A file that only its owner can read leads there: other users see the arguments of the browser.
    if not webbrowser.open(door.as_uri()):
        output.warn("no browser can be opened here; open the address yourself")


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= MOST_PORT:
        raise argparse.ArgumentTypeError(f"must be a port from 0 to {MOST_PORT}, not '{text}'")
    return int(text)
