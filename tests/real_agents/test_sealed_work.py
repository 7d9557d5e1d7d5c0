"""Twenty stories of everyday work by real agents: whatever succeeds at the seal `writes` does at the default.

The home holds private things of many kinds, so that there is something to hide; what an agent and its tools
need of it (git's settings, caches, the agent's own sign-in and conversations) stays usable.
"""

import time
from pathlib import Path
from typing import Any

import pytest

from runner.core.settings import Settings
from tests.acceptance.program import Ran, run, write_story
from tests.conftest import git
from tests.isolation.guard.guard_scenes import can_mount
from tests.real_agents.conftest import Stage

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not can_mount(), reason="this machine cannot mount"),
    pytest.mark.parametrize("agent", ["claude", "codex"]),
]
WEAK, DEFAULT = "writes", "secrets"
LIMIT = 1200.0
COMMIT = "git add -A && git commit -q -m 'work'"
PROJECT = {
    "README.md": "kept\n",
    "old.txt": "old\n",
    "lib/code.py": "def double(number):\n    return number + number\n",
    "Makefile": "build/out: lib/code.py\n\tmkdir -p build && cp lib/code.py build/out\n",
    ".gitignore": "build/\n",
}
PRIVATE = {
    ".ssh/id_ed25519": "PRIVATE",
    ".aws/credentials": "PRIVATE",
    ".netrc": "machine example.org login me password PRIVATE",
    ".npmrc": "//registry.example.org/:_authToken=PRIVATE",
    ".config/gh/hosts.yml": "oauth_token: PRIVATE",
    ".kube/config": "token: PRIVATE",
    ".docker/config.json": '{"auths": {"example.org": {"auth": "PRIVATE"}}}',
    ".bash_history": "export TOKEN=PRIVATE",
}
_SERVE = (
    "python3 -m http.server --bind 127.0.0.1 --directory lib 0 > port.log 2>&1 & S=$!; "
    "for I in $(seq 200); do grep -q port port.log && break; sleep 0.05; done; "
    "P=$(sed -n 's/.*port \\([0-9]*\\).*/\\1/p' port.log | head -1); "
    'python3 -c "import sys, urllib.request as u; print(u.build_opener(u.ProxyHandler({})).open('
    'sys.argv[1]).read().decode())" http://127.0.0.1:$P/code.py > served.txt; kill $S; rm port.log'
)
_TEST = (
    "import unittest\nfrom lib.code import double\n\n\nclass T(unittest.TestCase):\n"
    "    def test(self):\n        self.assertEqual(double(2), 4)\n"
)
_SOCKET = (
    "import os, socket, tempfile\n"
    "with tempfile.TemporaryDirectory() as folder:\n"
    "    server = socket.socket(socket.AF_UNIX); server.bind(folder + '/s'); server.listen()\n"
    "    client = socket.socket(socket.AF_UNIX); client.connect(folder + '/s'); client.sendall(b'heard')\n"
    "    open('heard.txt', 'wb').write(server.accept()[0].recv(9))\n"
)
WORK: dict[str, tuple[tuple[dict[str, Any], ...], str]] = {
    "adds": (({"write": ["new.txt", "made"]},), "grep -q made new.txt"),
    "edits": (({"sh": "sed -i 's/old/new/' old.txt"},), "grep -q new old.txt"),
    "deletes": (({"sh": "git rm -q old.txt"},), "test ! -e old.txt"),
    "renames": (({"sh": "git mv lib/code.py lib/other.py"},), "test -f lib/other.py"),
    "commits-twice": (
        ({"sh": f"echo 1 > one && {COMMIT}"}, {"sh": f"echo 2 > two && {COMMIT}"}),
        "test $(git rev-list --count main..HEAD) -ge 2",
    ),
    "amends": (
        ({"sh": f"echo 1 > one && {COMMIT}"}, {"sh": "echo 2 > one && git commit -q -a --amend -m better"}),
        "git log -1 --format=%s | grep -q better",
    ),
    "looks-back": (
        ({"sh": "(git log --oneline -3; git blame lib/code.py; git diff HEAD; git status) > seen.txt"},),
        "grep -q double seen.txt",
    ),
    "patches": (
        ({"sh": "echo more >> README.md && git diff > p && git apply -R p && git apply p && rm p"},),
        "grep -q more README.md",
    ),
    "tests": (
        (
            {"write": ["test_code.py", _TEST]},
            {"sh": "python3 -m unittest -q test_code 2> told.txt"},
        ),
        "grep -q OK told.txt",
    ),
    "builds": (({"sh": "make -s build/out && cp build/out built.txt"},), "grep -q double built.txt"),
    "runs-node": (({"sh": "node -e 'console.log(6 * 7)' > answer.txt"},), "grep -q 42 answer.txt"),
    "temporary-files": (
        ({"sh": "T=$(mktemp -d) && echo kept > $T/a && cp $T/a kept.txt && rm -r $T"},),
        "grep -q kept kept.txt",
    ),
    "caches": (
        ({"sh": "mkdir -p ~/.cache/tool && echo warm > ~/.cache/tool/@ID && cp ~/.cache/tool/@ID warm.txt"},),
        "grep -q warm warm.txt",
    ),
    "settings-of-git": (({"sh": "git config user.email > who.txt"},), "grep -q @ who.txt"),
    "serves": (({"sh": _SERVE},), "grep -q double served.txt"),
    "sockets": (
        ({"write": ["s.py", _SOCKET]}, {"sh": "python3 s.py && rm s.py"}),
        "grep -q heard heard.txt",
    ),
    "processes": (
        ({"sh": "sleep 60 & kill $! && wait $! || echo ended > ended.txt"},),
        "grep -q ended ended.txt",
    ),
    "strange-names": (({"sh": "mkdir -p 'a b' && echo ü > 'a b/ü 1.txt'"},), "test -f 'a b/ü 1.txt'"),
    "large-files": (
        ({"sh": "head -c 3000000 /dev/zero > large.bin"},),
        "test $(wc -c < large.bin) = 3000000",
    ),
    "links": (({"sh": "ln -s lib/code.py code && chmod +x lib/code.py"},), "test -L code -a -x lib/code.py"),
}


def carry(stage: Stage, seal: str) -> tuple[Ran, float]:
    """Carry all stories out in one run at a seal; return its answer, and the seconds that it took."""
    for name, (acts, check) in WORK.items():
        filled = [{kind: _filled(act, name) for kind, act in each.items()} for each in acts]
        body = stage.play(f"{seal}-{name}", *filled, {"sh": f"{COMMIT} || true"})
        keys = {"agent": stage.agent, "verify": [check], "max_attempts": 1}
        write_story(stage.repo, f"{seal}-{name}", body=body, **keys)
    begun = time.monotonic()
    flags = ("--json", stage.model, f"--seal={seal}", "--no-base-check", "--max-stories=4")
    stories = [f"{seal}-{name}" for name in WORK]
    ran = run(stage.repo, *stories, *flags, env=stage.env, limit=LIMIT)
    return ran, time.monotonic() - begun


def _filled(act: str | list[str], name: str) -> str | list[str]:
    return act.replace("@ID", name) if isinstance(act, str) else act


def test_the_default_seal_fails_no_story(stage: Stage, agent: str, tmp_path: Path) -> None:
    """Twenty stories at both seals: those that are done without secrets hidden are done with them hidden."""
    assert len(WORK) == 20
    assert Settings().seal == DEFAULT or "auto" in str(Settings().seal)
    for name, text in PRIVATE.items():
        path = tmp_path / "home" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    stage.configure(bypass=True)
    for name, text in PROJECT.items():
        path = stage.repo / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    git(stage.repo, "add", "-A")
    git(stage.repo, "commit", "-q", "-m", "project")
    failed: dict[str, dict[str, str]] = {}
    for seal in (WEAK, DEFAULT):
        ran, took = carry(stage, seal)
        stories = {name: ran.story(f"{seal}-{name}") for name in WORK}
        failed[seal] = {name: each["reason"] for name, each in stories.items() if each["status"] != "done"}
        print(f"{agent}, seal {seal}: {20 - len(failed[seal])} of 20 done in {took:.0f} s")  # noqa: T201  a figure
    assert failed == {WEAK: {}, DEFAULT: {}}
