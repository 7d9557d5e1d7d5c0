"""A run with its page, and another user of the machine: a real second account, which can do nothing with it.

The repository is where everybody can reach it, and readable, as git makes it; so it is not the folder that
keeps the other user out.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.serve.web.access.address import address_path, read_address
from tests.acceptance.people import Person, somebody
from tests.acceptance.program import run, started, wait_until, write_story
from tests.conftest import begin_repository, git

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")

# Each try prints one line: what it is, and what it has got.
TRIES = r"""
import http.client, json, os, signal, sqlite3, sys
own, server, coordinator, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])

def tried(name, act):
    try:
        got = act()
    except Exception as error:
        got = f"{type(error).__name__}: {error}"
    print(json.dumps([name, got]))

def read(path):
    return lambda: open(path, "rb").read(1 << 16).decode("latin-1")

def ask(method, path, **headers):
    def act():
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        link.request(method, path, "key=x" if method == "POST" else None, headers)
        answer = link.getresponse()
        return [answer.status, answer.read().decode()]
    return act

def journal(mode):
    def act():
        link = sqlite3.connect(f"file:{own}/journal.db?mode={mode}", uri=True)
        return [str(row) for row in link.execute("SELECT * FROM events LIMIT 3")]
    return act

def everything():
    texts = []
    for folder, _, names in os.walk(own):
        for name in names:
            try:
                texts.append(read(f"{folder}/{name}")())
            except PermissionError:
                pass
    return "".join(texts)

tried("everything", everything)
tried("list runs", lambda: os.listdir(f"{own}/runs"))
for name in ("web.json", f"web-{server}.html", "journal.db", "journal.db-wal", "lease.lock"):
    tried(f"read {name}", read(f"{own}/{name}"))
tried("journal ro", journal("ro"))
tried("journal rw", journal("rw"))
tried("leave a file", lambda: open(f"{own}/request", "w").write("stop"))
tried("replace web.json", lambda: os.rename("/etc/hostname", f"{own}/web.json"))
for pid in (server, coordinator):
    for name in ("environ", "mem", "fd/0", "root/etc/passwd", "cwd/README.md", "stack"):
        tried(f"read /proc/{pid}/{name}", read(f"/proc/{pid}/{name}"))
    tried(f"list fds of {pid}", lambda: os.listdir(f"/proc/{pid}/fd"))
    tried(f"read /proc/{pid}/cmdline", read(f"/proc/{pid}/cmdline"))
    tried(f"signal {pid}", lambda: os.kill(pid, signal.SIGTERM))
origin = f"http://127.0.0.1:{port}"
tried("page", ask("GET", "/"))
tried("page with a guess", ask("GET", "/?token=" + "A" * 43))
tried("events", ask("GET", "/events?page=board"))
tried("metrics", ask("GET", "/metrics"))
tried("stop", ask("POST", "/do/stop", Origin=origin))
tried("stop as a page", ask("POST", "/do/stop", **{"Sec-Fetch-Site": "same-origin",
      "Content-Type": "application/x-www-form-urlencoded", "Cookie": f"autopilot-multi-{port}=x"}))
"""


@pytest.fixture
def open_repo() -> Iterator[Path]:
    """Return a repository that every user of the machine can read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        repo = Path(os.path.realpath(folder)) / "repo"
        begin_repository(repo, {"README.md": "# shop\n"})
        yield repo


def test_another_user_can_neither_read_nor_steer_a_run(open_repo: Path) -> None:
    """Files, processes, the page and the program itself refuse; the run goes on and hears nothing of it."""
    begun, go = open_repo.parent / "begun", open_repo.parent / "go"
    secret = "the-words-of-the-prompt"  # noqa: S105  only these words are looked for
    wait = f"echo {secret}; touch {begun}; until test -e {go}; do sleep 0.1; done; echo x > made.txt"
    write_story(open_repo, "a", body=secret, command=wait, verify=["true"])
    with started(open_repo, "run", "--web", "--json") as program, somebody("nobody") as other:
        wait_until(lambda: begun.exists() and read_address(open_repo / ".git"), what="the page is served")
        address = read_address(open_repo / ".git")
        assert address is not None
        token = address.url.partition("token=")[2]
        port = address.url.partition("127.0.0.1:")[2].partition("/")[0]
        own = address_path(open_repo / ".git").parent
        pids = (str(address.pid), str(program.pid))
        done = other.call(other.python, "-c", TRIES, str(own), *pids, port, cwd=other.folder)
        assert done.returncode == 0, done.stderr
        assert token not in done.stdout
        assert secret not in done.stdout
        judge(dict(json.loads(line) for line in done.stdout.splitlines()))
        refused_by_the_program(other, open_repo, secret)
        assert git(open_repo, "status", "--porcelain", "--", "README.md") == ""
        go.touch()
        ended = program.finish()
    assert (ended.code, ended.story("a")["status"]) == (0, "done"), ended.err


def judge(tries: dict[str, object]) -> None:
    """Everything was denied but command lines, and files that hold nothing of the story or the page."""
    assert len(tries) >= 20
    for name, got in tries.items():
        if name.endswith("/cmdline") or name == "everything":
            continue
        if isinstance(got, list):
            assert got[0] == 403, (name, got)
            assert "shop" not in got[1]
        else:
            assert str(got).startswith(("PermissionError", "OperationalError")), (name, got)


def refused_by_the_program(other: Person, repo: Path, secret: str) -> None:
    """Each command that watches or steers exits with an error in words and shows nothing of the run."""
    # Git's own refusal of other people's repositories is lifted: it is not what keeps them out here.
    git_trusts = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    trusting = Person(folder=other.folder, uid=other.uid, environment={**other.environment, **git_trusts})
    before = run(repo, "status", "--json").data["stories"]
    for argv in (
        ("status",),
        ("logs", "a"),
        ("show", "a"),
        ("attach",),
        ("pause",),
        ("stop", "--now"),
        ("retry", "a"),
        ("takeover", "a"),
        ("add", "do more"),
        ("web", "--port", "0"),
    ):
        ran = trusting.run(trusting.folder, *argv, "-C", str(repo))
        assert ran.code not in {0, 70}, (argv, ran.out, ran.err)
        assert "error: " in ran.err
        assert "Traceback" not in ran.err
        assert secret not in ran.out + ran.err
    after = run(repo, "status", "--json").data["stories"]
    assert [story["status"] for story in before] == [story["status"] for story in after] == ["running"]
