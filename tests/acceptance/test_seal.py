"""Sealed sessions as a user meets them: a session that hunts for secrets, and what it finds at each level."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.people import NO_MOUNTS, USERS, Person, somebody
from tests.acceptance.program import Ran, run, write_story
from tests.conftest import git
from tests.isolation.guard.guard_scenes import can_mount

sealed = pytest.mark.skipif(not can_mount(), reason="this machine cannot mount")

MARK = "HUNTED"
STORES = {
    ".ssh/id_ed25519": MARK,
    ".gnupg/private-keys-v1.d/key": MARK,
    ".aws/credentials": MARK,
    ".azure/token.json": MARK,
    ".config/gcloud/access_tokens.db": MARK,
    ".kube/config": MARK,
    ".docker/config.json": f'{{"auths": {{"registry": {{"auth": "{MARK}"}}}}}}',
    ".netrc": f"machine a login b password {MARK}",
    ".git-credentials": f"https://me:{MARK}@example.org",
    ".config/gh/hosts.yml": MARK,
    ".config/glab-cli/config.yml": MARK,
    ".npmrc": f"//registry/:_authToken={MARK}",
    ".pypirc": f"password = {MARK}",
    ".config/pip/pip.conf": f"index-url = https://me:{MARK}@example.org/simple",
    ".mozilla/firefox/logins.json": MARK,
    ".config/chromium/Default/Cookies": MARK,
    ".password-store/mail.gpg": MARK,
    ".local/share/keyrings/login.keyring": MARK,
    ".bash_history": MARK,
    ".local/share/autopilot-multi/trust/one.json": MARK,
    ".config/autopilot-multi/other.txt": MARK,
    ".claude/.credentials.json": MARK,
    ".codex/auth.json": MARK,
    "Documents/diary": MARK,
}
OPEN = {
    ".ssh/known_hosts": "hosts",
    ".config/uv/uv.toml": "index = 'https://example.org'",
    ".profile": "mine",
}

HUNT = """
import glob, json, os, socket, time
home = os.path.expanduser("~")
while not os.path.exists(home + "/sibling"):
    time.sleep(0.01)
found = {"files": [], "variables": [], "processes": [], "sockets": [], "open": []}
for folder, _, names in os.walk(home):
    for name in names:
        path = os.path.join(folder, name)
        try:
            text = open(path, errors="replace").read()
        except OSError:
            continue
        kind = "files" if "HUNTED" in text else "open" if text else ""
        if kind:
            found[kind].append(os.path.relpath(path, home))
found["variables"] = sorted(name for name, value in os.environ.items() if "HUNTED" in value)
for path in glob.glob("/proc/[0-9]*/environ"):
    pid = int(path.split("/")[2])
    try:
        text = open(path, "rb").read()
    except OSError:
        continue
    if os.getsid(pid) == os.getsid(0):
        continue
    for mark, what in ((b"AUTOPILOT_STORY_ID=b", "sibling"), (b"HUNTED", "coordinator")):
        if mark in text:
            found["processes"].append(what)
found["processes"] = sorted(set(found["processes"]))
for place in (os.environ.get("SSH_AUTH_SOCK", ""), home + "/../agent.sock"):
    try:
        socket.socket(socket.AF_UNIX).connect(place)
        found["sockets"].append(os.path.basename(place))
    except OSError:
        pass
os.makedirs("out", exist_ok=True)
json.dump(found, open("out/found.json", "w"))
open(home + "/hunted", "w").close()
"""


@contextmanager
def hunted(person: Person) -> Iterator[tuple[Path, Person]]:
    """Provide somebody with secrets of every kind, and a story that hunts while another one works."""
    home = person.folder / "home"
    for name, text in {**STORES, **OPEN}.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    person.hand_over(home)
    root = person.repository({"hunt.py": HUNT})
    person.story(root, "a", f"{person.python} hunt.py")
    person.story(root, "b", "touch ~/sibling; until [ -e ~/hunted ]; do sleep 0.01; done; echo b > b")
    agent = person.folder / "agent.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(agent))
        listening.listen(8)
        person.hand_over(agent)
        secrets = {
            "ANTHROPIC_API_KEY": f"{MARK}-1",
            "STRIPE_SECRET_KEY": f"{MARK}-2",
            "HARMLESS": f"{MARK} ghp_{'a' * 36}",
            "SSH_AUTH_SOCK": str(agent),
            "AUTOPILOT_MULTI_TRUST": "always",
        }
        yield root, Person(**{**_fields(person), "environment": {**person.environment, **secrets}})


def _fields(person: Person) -> dict[str, Any]:
    return {name: getattr(person, name) for name in ("folder", "uid", "landlocks", "namespaces")}


def hunt(person: Person, root: Path, *args: str) -> dict[str, list[str]]:
    """Run the program by a new interpreter, whose environment can be read, and return what was found."""
    done = person.call(*person.command("--json", *args), cwd=root)
    ran = Ran(code=done.returncode, out=done.stdout, err=done.stderr)
    assert ran.story("a")["status"] == "done", (ran.err, ran.out)
    found: dict[str, list[str]] = json.loads(person.git(root, "show", "autopilot/a:out/found.json"))
    return found


@sealed
@pytest.mark.parametrize("name", USERS)
def test_a_session_that_hunts_for_secrets_finds_none(name: str) -> None:
    """At the default no key, no variable, no other process and no agent's socket is within reach."""
    with somebody(name) as person, hunted(person) as (root, owner):
        (root / "autopilot-multi.toml").write_text('seal-hides = ["~/Documents"]\n')
        found = hunt(owner, root)
        checks = owner.call(*owner.command("doctor"), cwd=root).stdout
        planned = owner.call(*owner.command("plan"), cwd=root).stdout
    assert {kind: found[kind] for kind in ("files", "variables", "processes", "sockets")} == {
        "files": [],
        "variables": [],
        "processes": [],
        "sockets": [],
    }
    assert set(OPEN) <= set(found["open"])
    assert "private files and folders of yours, nor variables" in " ".join(checks.split())
    assert "seal secrets" in planned


@sealed
@pytest.mark.parametrize("name", USERS)
def test_without_the_seal_all_of_them_are_found(name: str) -> None:
    """The hunt itself is honest: at `writes` it finds every file, every variable and the socket."""
    with somebody(name) as person, hunted(person) as (root, owner):
        found = hunt(owner, root, "--seal", "writes")
    assert set(STORES) == set(found["files"])
    assert found["variables"] == ["ANTHROPIC_API_KEY", "HARMLESS", "STRIPE_SECRET_KEY"]
    assert found["sockets"] == ["agent.sock", "agent.sock"]


@sealed
@pytest.mark.parametrize("level", ["divert", "deny"])
def test_a_shared_tree_is_sealed_too(level: str) -> None:
    """Sessions that share the checkout see as little as those with a worktree of their own."""
    with somebody("me") as person, hunted(person) as (root, owner):
        for name in "ab":
            (root / "stories" / f"{name}.md").unlink()
        owner.story(root, "a", f"{owner.python} hunt.py", owns=["out/**"])
        (person.folder / "home" / "sibling").touch()
        flags = ("--bg-isolation", "none", "--max-stories", "1", "--enforce", level, "--seal", "secrets")
        found = hunt(owner, root, *flags)
    assert found["files"] == ["Documents/diary"]
    assert (found["variables"], found["sockets"]) == ([], [])


SIGNED_IN = """#!/bin/sh
cat > /dev/null
exec > got
cat ~/.claude/.credentials.json ~/.codex/auth.json
echo "$ANTHROPIC_API_KEY$OPENAI_API_KEY"
"""


@sealed
def test_an_agent_reads_its_own_sign_in_and_nothing_else_does(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent has its file and its variable, not those of another agent; hooks and verify have none."""
    home = Path.home()
    for name in (".claude/.credentials.json", ".codex/auth.json", "bin/claude"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SIGNED_IN if name == "bin/claude" else f"file {name}\n")
    (home / "bin" / "claude").chmod(0o755)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "variable claude")
    monkeypatch.setenv("OPENAI_API_KEY", "variable codex")
    nothing = (
        'test -z "$ANTHROPIC_API_KEY$OPENAI_API_KEY$(cat ~/.claude/.credentials.json ~/.codex/auth.json)"'
    )
    (repo / "autopilot-multi.toml").write_text(
        f"agent = 'mine'\nverify = ['{nothing}']\n[hooks]\nafter_create = '{nothing}'\n"
        f"[agents.mine]\nargv = ['{home}/bin/claude']\n"
    )
    write_story(repo, "a")
    ran = run(repo, "--json")
    assert ran.story("a")["status"] == "done", ran.err
    assert git(repo, "show", "autopilot/a:got") == "file .claude/.credentials.json\nvariable claude\n"


@sealed
def test_what_a_session_misses_is_named_and_can_be_shown(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure names the file and the variable in log, reason and next prompt, and the settings for both."""
    home = Path.home()
    for name in (".kube/config", ".npmrc"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("//registry/:_authToken=abcdefgh\n")
    monkeypatch.setenv("NPM_TOKEN", "abcdefgh")
    command = (
        'cat "$AUTOPILOT_PROMPT_FILE" > prompt; '
        "cat ~/.kube/config > a && grep -q . ~/.npmrc || { echo npm error code E401; exit 1; }; "
        'test -n "$NPM_TOKEN" || { echo NPM_TOKEN is not set; exit 1; }'
    )
    write_story(repo, "a", command=command)
    refused = run(repo, "--json", "--max-attempts", "2")
    reason = refused.story("a")["reason"]
    kube = "access to Kubernetes, which sessions do not see (~/.kube/config): `seal-shows` shows them"
    npm = "tokens of npm, which sessions do not see (~/.npmrc): `seal-shows` shows them"
    assert kube in reason
    assert npm in reason
    assert f"autopilot-multi: it may have missed {kube}" in run(repo, "logs", "a").out
    assert npm in (repo.parent / f"{repo.name}.worktrees" / "a" / "prompt").read_text()
    (repo / "autopilot-multi.toml").write_text('seal-shows = ["~/.kube", "~/.npmrc"]\n')
    half = run(repo, "run", "--retry-failed", "--json", "--max-attempts", "1").story("a")
    assert "it may need NPM_TOKEN, which sessions do not get: `pass-env` passes variables" in half["reason"]
    with (repo / "autopilot-multi.toml").open("a") as file:
        file.write('pass-env = ["NPM_*"]\n')
    assert run(repo, "run", "--retry-failed", "--json").story("a")["status"] == "done"


def test_a_machine_that_cannot_mount_says_so(repo: Path) -> None:
    """`auto` runs without the seal and names that; `secrets` by name refuses before anything starts."""
    write_story(repo, "a", command="echo x > a")
    off = run(repo, "--no-guard", "--seal", "secrets")
    assert off.code == 1
    assert "seal 'secrets' is not available for this run: nothing confines" in off.err
    with somebody("me", landlocks=NO_MOUNTS) as person:
        root = person.repository({"x": "x\n"})
        person.story(root, "a", "echo x > a")
        assert "is not available for this run" in person.run(root, "--seal", "secrets").err
        ran = person.run(root, "--json")
        assert ran.story("a")["status"] == "done", ran.err
        note = "sessions can read your keys and other private files: this machine cannot mount for a session"
        assert note in ran.err
