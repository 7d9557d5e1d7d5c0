"""Targets for what runs and other programs leave: journals, records, shards, registry, locks, trust, git."""

import hashlib
import json
from types import SimpleNamespace
from typing import Any, cast

from isolation.errors import IsolationError
from isolation.files import lease
from isolation.git import commit_flaws, registrations
from isolation.git.direct.index_file import is_plain, summarize
from isolation.git.direct.refs import head_without_git, read_head, read_ref
from isolation.git.forecast import contact, merge_answers
from isolation.git.remotes import without_credentials
from isolation.git.repository import GitOutput
from isolation.paths import RepositoryPaths, current_branch, find_repository, lease_path, sessions_dir
from isolation.shared_tree import quarantine
from runner.cli.shards import _from_matrix
from runner.core.errors import JournalError, UsageError
from runner.core.events.events import decode
from runner.core.events.story_json import from_json
from runner.core.limits.confidence import derived_threshold
from runner.core.past_runs import past_runs, summary
from runner.core.text.screen import neutral
from runner.flows.overview import blobs
from runner.machine import control_groups, registry, session_lock
from runner.plan.settings import json_form
from runner.plan.trust import agreed as trust
from runner.records import base_answers, signals
from runner.records.learnings import load_accuracies
from runner.records.shards.files import branches_in_bundle
from runner.records.shards.results import used_in
from runner.records.shards.shard import EVENTS, MANIFEST, ShardError, changes_of, load_shard
from runner.records.telemetry import load_loops, load_spending
from runner.remote.ci.balance import load_records
from runner.report.terminal.history import runs_document
from tests.fuzz.numbers import require_amounts
from tests.fuzz.registry import folder, target, text_of, written

WRONG_EVENT = (TypeError, ValueError, AttributeError)
"""What the journal explains as an event that cannot be read."""


@target(*WRONG_EVENT)
def journal_event(data: bytes) -> None:
    kind, _, values = data.partition(b"\n")
    decode(text_of(kind), json.loads(values))


@target(*WRONG_EVENT, JournalError)
def journal_settings(data: bytes) -> None:
    json_form.from_json(json.loads(data))


@target(*WRONG_EVENT)
def journal_story(data: bytes) -> None:
    from_json(json.loads(data))


@target()
def records(data: bytes) -> None:
    """The records of runs and sessions: history, estimates, and the balance of jobs."""
    top = folder() / "records"
    for name in ("autopilot.jsonl", "sessions.jsonl", "learnings.jsonl"):
        written(data, f"records/.orchestrator/metrics/{name}")
    runs = past_runs(load_loops(top))
    require_amounts(summary(runs))
    json.dumps(runs_document(runs, summary(runs)), allow_nan=False)
    for run in runs:
        require_amounts((run.seconds, run.tokens, run.cost_usd, run.counts, run.sessions))
    require_amounts([one.amount for one in load_spending(top)])
    for one in load_accuracies(top):
        assert 0 <= one.confidence <= 1
    derived_threshold(load_accuracies(top))
    require_amounts(load_records([top / ".orchestrator/metrics/autopilot.jsonl"]))


@target()
def project_state(data: bytes) -> None:
    """The front matter of another program's STATE.md, which a selector is told of as JSON."""
    written(data, "state/.claude/STATE.md")
    json.dumps(signals._recommendation(folder() / "state"), allow_nan=False)


@target(ShardError)
def shard(data: bytes) -> None:
    """A shard whose manifest fits its files: the manifest, a line, and the other files, each after a line."""
    manifest, events, backlog, changes, bundle, *_ = (*data.split(b"\n=====\n"), b"", b"", b"", b"")
    place = folder() / "shard"
    files: dict[str, Any] = {}
    contents = {EVENTS: events, "backlog.json": backlog, "changes.json": changes, "commits.bundle": bundle}
    for name, content in contents.items():
        path = written(content, f"shard/{name}")
        if content:
            files[name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        else:
            path.unlink()
    try:
        document = json.loads(manifest)
        document["files"] = {**document.get("files", {}), **files}
    except (ValueError, RecursionError, TypeError, AttributeError):
        written(manifest, f"shard/{MANIFEST}")
    else:
        written(json.dumps(document).encode(), f"shard/{MANIFEST}")
    found = load_shard(place)
    changes_of(found)
    require_amounts(used_in([found], base=found.base))


@target(ValueError)
def bundle(data: bytes) -> None:
    branches_in_bundle(written(data, "some.bundle").parent, "some.bundle")


@target()
def registry_entry(data: bytes) -> None:
    place = registry.Registry(folder())
    path = sessions_dir(folder()) / f"one{registry.SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    for entry in place.active(1.7e9):
        require_amounts((entry.pid, entry.start_ticks))
        assert neutral(entry.description) == entry.description
        registry._to_json(entry)
        registry._gone(entry, entry.boot_id)


@target()
def session_locks(data: bytes) -> None:
    top = folder() / "lock"
    written(data, f"lock/{session_lock.NAME}")
    for found in session_lock.locked([top], 1.7e9):
        assert found.description.isprintable()


@target()
def lease_file(data: bytes) -> None:
    path = lease_path(folder() / "lease")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    holder = lease.read_holder(folder() / "lease")
    if holder is not None:
        lease._held(holder, folder() / "lease")
        lease._is_running(holder)
    lease._settle(folder() / "lease")


@target()
def trust_file(data: bytes) -> None:
    repository = cast("Any", SimpleNamespace(common_dir=folder(), top=folder()))
    environ = {"XDG_DATA_HOME": str(folder())}
    path = trust._file(repository, environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    for what, value in trust.load_trust(repository, environ).agreed:
        assert isinstance(what, str)
        assert isinstance(value, str)


@target()
def base_checks(data: bytes) -> None:
    written(data, f"autopilot/{base_answers._FILE}")
    base_answers.load_answers(folder())


@target(UsageError)
def matrix_file(data: bytes) -> None:
    _from_matrix(written(data, "matrix.json"))


@target()
def git_worktrees(data: bytes) -> None:
    """The output of `worktree list --porcelain -z`: names and reasons of others are in it."""
    name = text_of(data).replace("\0", "").lstrip("\n") or "x"
    block = f"worktree /{name}\0HEAD {'0' * 40}\0branch refs/heads/{name}\0locked {name}"
    found = registrations._parse(block.split("\0"))
    assert str(found.path)
    without_credentials(name)


@target(ValueError)
def git_answers(data: bytes) -> None:
    text = text_of(data)
    fields = [part for part in text.split("\0") if part]
    merge_answers.named_in_messages(GitOutput(returncode=1, stdout=text, stderr=""))
    commit_flaws._added_lines(text.split("\n"))
    list(blobs(data))
    merge_answers.read_answers(text)
    contact.changes_of(fields)


@target(IsolationError)
def git_folder(data: bytes) -> None:
    """What is read of a git directory without git: HEAD, packed references, the link of a worktree."""
    top = folder() / "checkout"
    for name in ("HEAD", "packed-refs", "config"):
        written(data, f"checkout/.git/{name}")
    (top / ".git/objects").mkdir(exist_ok=True)
    (top / ".git/refs").mkdir(exist_ok=True)
    current_branch(top)
    head_without_git(RepositoryPaths(top=top, common_dir=top / ".git"))
    read_head(top / ".git", top)
    read_ref(top / ".git", "refs/heads/main")
    find_repository(written(data, "linked/.git").parent)


@target(ValueError)
def git_index(data: bytes) -> None:
    """An index, which a session can write as it likes: whether it is plain, and what it names."""
    for hash_size in (20, 32):
        is_plain(data, hash_size)
    summarize(written(data, "index"))


@target(KeyError, TypeError, ValueError)
def quarantine_manifest(data: bytes) -> None:
    quarantine.from_json(json.loads(data))


@target()
def machine_files(data: bytes) -> None:
    """Pressure, limits and mounts as the kernel, or a container's shim, shows them."""
    for name in ("self/cgroup", "self/mountinfo"):
        written(data, f"proc/{name}")
    control_groups.load_control_groups(folder() / "proc")
    require_amounts(control_groups.stall_of(written(data, "proc/memory.pressure")))
