"""Shards on disk: complete or absent, and nothing in one is believed that its manifest does not say."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from isolation.git.repository import Repository
from runner.core.errors import SystemFaultError
from runner.core.events.events import RunStarted
from runner.core.events.story_json import digest
from runner.core.model import Story, StoryId
from runner.core.text.redaction import Redactor
from runner.records.shards.results import results_in
from runner.records.shards.shard import (
    BACKLOG,
    EVENTS,
    MANIFEST,
    SESSIONS,
    STATE,
    ShardError,
    find_shards,
    load_shard,
    load_shards,
)
from runner.remote.ci.join import join
from runner.remote.ci.shard_writer import ShardContent, require_free, write_shard
from tests.records.sample_runs import BASE, ended_events, snapshot


@pytest.fixture
def handover(repo: Path) -> ShardContent:
    """Return what a job with a done, a failed and a skipped story hands over."""
    events = ended_events()
    names = ("api-3", "checkout-17", "web-1")
    return ShardContent(
        repository=Repository.open(repo),
        run=snapshot(events),
        events=events,
        own=tuple(StoryId(name) for name in names),
        backlog=[Story(id=StoryId(name), title=name, prompt="") for name in names],
        redactor=Redactor({}),
    )


@pytest.fixture
def shard(tmp_path: Path, handover: ShardContent) -> Path:
    """Return a shard on disk."""
    path = tmp_path / "out" / "shard"
    write_shard(path, handover)
    return path


def change_manifest(shard: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Write a manifest that says something else."""
    manifest = json.loads((shard / MANIFEST).read_text())
    change(manifest)
    (shard / MANIFEST).write_text(json.dumps(manifest))


def test_what_was_written_is_read(shard: Path, handover: ShardContent) -> None:
    """Events come back as they were; a story without commits has no bundle."""
    read = load_shard(shard)
    assert list(read.events) == list(handover.events)
    assert (read.base, read.exit_code) == (BASE, 4)
    assert read.branches == {}
    assert not (shard / "commits.bundle").exists()
    assert sorted(path.name for path in shard.iterdir()) == [
        "backlog.json",
        "changes.json",
        "events.ndjson",
        "records",
        "shard.json",
        "state.json",
    ]


def test_nothing_is_left_of_a_shard_that_could_not_be_completed(
    tmp_path: Path, handover: ShardContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptance 72: on a full disk there is an error, and neither a shard nor its beginnings."""
    real, calls = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SystemFaultError, match="No space left on device"):
        write_shard(tmp_path / "out" / "shard", handover)
    assert list((tmp_path / "out").iterdir()) == []


def test_an_empty_folder_is_a_free_place_and_a_taken_one_is_not(
    tmp_path: Path, handover: ShardContent
) -> None:
    """CI systems make the folders of artifacts; what is in them stays."""
    out = tmp_path / "out"
    out.mkdir()
    write_shard(out, handover)
    assert load_shard(out).exit_code == 4
    with pytest.raises(ShardError, match="already exists"):
        require_free(out)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ShardError, match="already exists"):
        require_free(tmp_path / "link")


@pytest.mark.parametrize("name", [EVENTS, STATE])
def test_a_file_that_is_not_what_was_written_is_refused(shard: Path, name: str) -> None:
    """A truncated, a changed, a linked and a missing file are each called damage."""
    path = shard / name
    whole = path.read_bytes()
    (shard.parent / "copy").write_bytes(whole)
    for spoil in (
        lambda: path.write_bytes(whole[:-5]),
        lambda: path.write_bytes(whole[:-2] + b"!\n"),
        path.unlink,
        lambda: path.symlink_to(shard.parent / "copy"),
    ):
        spoil()
        with pytest.raises(ShardError, match=f"is damaged: {name}"):
            load_shard(shard).read(name)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "logs/../../x", "a\\b", "a\nb"])
def test_a_name_that_leads_out_of_the_shard_is_refused(shard: Path, name: str) -> None:
    """Acceptance 11: before anything is read or written there."""
    change_manifest(shard, lambda manifest: manifest["files"].update({name: {"size": 0, "sha256": ""}}))
    with pytest.raises(ShardError, match="cannot be called"):
        load_shard(shard)


def change_file(shard: Path, name: str, data: bytes) -> None:
    """Write another content, as the manifest describes it."""
    (shard / name).write_bytes(data)
    entry = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    change_manifest(shard, lambda manifest: manifest["files"].update({name: entry}))


def test_a_backlog_that_several_shards_hold_is_parsed_once_and_checked_in_each(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same wrong one is named for each of them, and a changed one is not taken for that of the others."""
    parsed: list[bytes] = []
    real = json.loads

    def loads(data: bytes) -> object:
        parsed.append(data)
        return real(data)

    same, changed = tmp_path / "out" / "x-same", tmp_path / "out" / "y-changed"
    shutil.copytree(shard, same)
    shutil.copytree(shard, changed)
    sound = (shard / BACKLOG).read_bytes()
    (changed / BACKLOG).write_bytes(sound.replace(b"api-3", b"api-4"))
    monkeypatch.setattr(json, "loads", loads)
    found = load_shards([tmp_path])
    assert parsed.count(sound) == 1
    assert [one.path for one in found.shards] == [shard, same]
    (problem,) = found.problems
    assert problem.startswith(f"the shard {changed} is damaged: {BACKLOG} differs")
    for one in (shard, same, changed):
        change_file(one, BACKLOG, sound.replace(b"api-3", b"../x3"))
    found = load_shards([tmp_path])
    assert (found.shards, len(found.problems)) == ((), 3)
    assert all("a story cannot be called '../x3'" in problem for problem in found.problems)


def test_a_folder_of_a_shard_may_be_a_link_that_stays_inside(shard: Path, tmp_path: Path) -> None:
    """One that leads out is refused, however deep it is."""
    (shard / "records").rename(shard / "kept")
    (shard / "records").symlink_to("kept")
    assert load_shard(shard).read(SESSIONS)
    (shard / "kept").rename(tmp_path / "kept")
    (shard / "records").unlink()
    (shard / "records").mkdir()
    for name in ("autopilot.jsonl", "sessions.jsonl"):
        (shard / "records" / name).write_bytes((tmp_path / "kept" / name).read_bytes())
    (shard / "records" / "deep").symlink_to(tmp_path)
    empty = {"size": 0, "sha256": hashlib.sha256().hexdigest()}
    (tmp_path / "kept" / "empty").touch()
    name = "records/deep/kept/empty"
    change_manifest(shard, lambda manifest: manifest["files"].update({name: empty}))
    with pytest.raises(ShardError, match=f"{name} is outside the shard"):
        load_shard(shard)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"exit_code": 10**16}, "has an impossible number"),
        ({"exit_code": -1e16}, "has an impossible number"),
        ({"exit_code": float("nan")}, "has an impossible number"),
        ({"exit_code": {"deep": [float("-inf")]}}, "has an impossible number"),
        ({"exit_code": {"cost_usd": -0.5}}, "-0.5 is not a possible amount of cost_usd"),
        ({"exit_code": {"input_tokens": "7"}}, "'7' is not a possible amount of input_tokens"),
        ({"exit_code": {"output_tokens": True}}, "True is not a possible amount of output_tokens"),
    ],
)
def test_numbers_that_no_budget_can_work_with_are_refused(
    shard: Path, change: dict[str, Any], said: str
) -> None:
    """Wherever they are in an event."""
    *lines, last = (shard / EVENTS).read_text().splitlines()
    event = json.loads(last)
    data = "\n".join([*lines, json.dumps({**event, "data": {**event["data"], **change}}), ""]).encode()
    change_file(shard, EVENTS, data)
    with pytest.raises(ShardError, match=said):
        load_shard(shard)


def test_other_forms_are_named(shard: Path) -> None:
    """A newer form, a newer event and a manifest that lacks something are distinguished."""
    change_manifest(shard, lambda manifest: manifest.pop("base"))
    with pytest.raises(ShardError, match="KeyError: 'base'"):
        load_shard(shard)
    change_manifest(shard, lambda manifest: manifest.update(schema=2))
    with pytest.raises(ShardError, match="unknown format"):
        load_shard(shard)


def test_only_shards_are_found(shard: Path) -> None:
    """A beginning that a kill left, and another program's `shard.json`, are none; one folder counts once."""
    root = shard.parent
    (root / "other").mkdir()
    (root / "other" / MANIFEST).write_text('{"kind": "elasticsearch"}')
    shutil.copytree(shard, root / ".shard.123-ab.partial")
    assert list(find_shards(root)) == [shard]
    assert len(load_shards([root, shard, root]).shards) == 1
    with pytest.raises(ShardError, match=r"no folder .* to read shards from"):
        load_shards([root / "nowhere"])


def test_what_shards_tell_depends_on_whether_the_rest_goes_on_here(shard: Path) -> None:
    """A story that no shard has counts as stopped; a run of everything takes up what was left unfinished."""
    shards = load_shards([shard]).shards
    stories = [Story(id=StoryId(name), title="", prompt="") for name in ("api-3", "web-1", "gone")]
    options = shards[0].started.options
    digests = {story.id: digest(story) for story in stories}
    events = [
        replace(event, body=replace(event.body, options={**options, "digests": digests}))
        if isinstance(event.body, RunStarted)
        else event
        for event in shards[0].events
    ]
    known = [replace(shards[0], events=tuple(events))]
    job = results_in(known, stories, base=BASE, rerun_unfinished=False)
    assert {name: verdict.verdict for name, verdict in job.items()} == {
        "api-3": "done",
        "web-1": "skipped",
        "gone": "stopped",
    }
    assert list(results_in(known, stories, base=BASE, rerun_unfinished=True)) == ["api-3"]
    with pytest.raises(ShardError, match="another story"):
        results_in(shards, stories, base=BASE, rerun_unfinished=True)
    with pytest.raises(ShardError, match="starts from commit"):
        results_in(known, stories, base="f" * 40, rerun_unfinished=True)


def test_a_joined_run_is_the_same_whatever_the_order(shard: Path, tmp_path: Path) -> None:
    """One shard yields its own run again; the same shard twice changes nothing."""
    copy = tmp_path / "copy"
    shutil.copytree(shard, copy)
    one, other = load_shard(shard), load_shard(copy)
    alone, both, turned = join([one]), join([one, other]), join([other, one])
    assert alone.run == both.run == turned.run
    assert both.remarks == turned.remarks != ()
    own = snapshot(ended_events())
    assert {name: story.status for name, story in alone.run.stories.items()} == {
        name: story.status for name, story in own.stories.items()
    }
    assert (alone.exit_code, alone.run.ended_at) == (4, own.ended_at)
    assert all(story.workspace.path is None for story in alone.run.stories.values())


def test_two_shards_that_claim_to_be_the_same_run_and_differ_are_not_used(
    shard: Path, tmp_path: Path
) -> None:
    """Nobody can tell which of them to believe."""
    copy = tmp_path / "copy"
    shutil.copytree(shard, copy)
    change_manifest(copy, lambda manifest: manifest["files"].pop(STATE))
    joined = join(load_shards([shard, copy]).shards)
    assert "are both run" in joined.problems[1]
    assert (joined.sources, joined.exit_code) == ({}, 2)
