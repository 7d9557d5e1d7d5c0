"""What joining costs: two hundred shards made one run, beside reading and parsing the files it is made from.

Reading is what the crudest join does: every file with its checksum and its JSON. Processor time counts, since
both are work and no waiting; the two take turns, and the best round of each counts.
"""

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from isolation.git.repository import Repository, init_repository
from isolation.paths import find_repository
from runner.core.events import events as ev
from runner.core.events.fold import fold
from runner.core.events.story_json import digest, to_json
from runner.core.model import RunId, Story, StoryId
from runner.core.text.redaction import Redactor
from runner.records.shards.shard import MANIFEST, load_shards
from runner.remote.ci.join import join
from runner.remote.ci.shard_writer import ShardContent, write_shard
from runner.report.run_document import run_document
from tests.bench import record

SHARDS = 200
ROUNDS = 15
LIMIT = 2.0
BEGUN = 1767355391.0


def stories() -> list[Story]:
    """Return a backlog in which every fourth story waits for the one before it."""
    names = [f"story-{number:03}" for number in range(SHARDS)]
    return [
        Story(
            id=StoryId(name),
            title=f"Bring {name} to its end",
            prompt="Make the payment client retry on timeout. " * 12,
            depends_on=(StoryId(names[number - 1]),) if number % 4 == 3 else (),
        )
        for number, name in enumerate(names)
    ]


def events_of(story: Story, run_id: RunId, base: str) -> list[ev.Event]:
    """Return what happens in a job with one story: three sessions and a commit."""
    branch, name = f"autopilot/{story.id}", story.id
    started = ev.RunStarted(
        base=base,
        isolation="worktree",
        enforcement="none",
        max_stories=1,
        options={"digests": {name: digest(story)}},
        stories=({**to_json(story), "depends_on": []},),
    )
    bodies: list[ev.Body] = [
        started,
        ev.WindowChanged(window=1, tier="green", reason="12.1 GB free"),
        ev.StoryStarted(story_id=name),
        ev.WorkspacePlanned(story_id=name, branch=branch, path=f"/srv/{name}"),
        ev.WorkspaceOpened(story_id=name, branch=branch, path=f"/srv/{name}", base=base, head=base),
    ]
    for number, kind in enumerate(("work", "work", "verify"), 1):
        session = f"{run_id}-{name}-{number}"
        log = f"runs/{run_id}/{name}/{number}.log"
        bodies += [
            ev.SessionStarted(
                story_id=name,
                session_id=session,
                kind=kind,
                step_number="1",
                step_name="Implement",
                attempt=1,
                agent="claude",
                log=log,
            ),
            ev.SessionEnded(
                story_id=name, session_id=session, outcome="ok", exit_code=0, detail="it said " * 20
            ),
        ]
    bodies += [
        ev.CheckpointPlanned(story_id=name),
        ev.Checkpointed(story_id=name, commit=base, commits=1),
        ev.StoryFinished(story_id=name, verdict="done", reason="1 commit, verified", commit=base, commits=1),
        ev.WorkspaceClosed(story_id=name, removed=True, reason=""),
        ev.RunEnded(exit_code=0),
    ]
    return [ev.Event(run_id=run_id, at=BEGUN + place, body=body) for place, body in enumerate(bodies)]


def write_shards(folder: Path, repository: Repository) -> None:
    """Put the shards on disk, as jobs do."""
    base = repository.resolve("HEAD")
    backlog = stories()
    for number, story in enumerate(backlog):
        run_id = RunId(f"20260102-120311-{number:08x}")
        events = events_of(story, run_id, base)
        handover = ShardContent(
            repository=repository,
            run=fold(run_id, events),
            events=events,
            own=(story.id,),
            backlog=backlog,
            redactor=Redactor({}),
        )
        write_shard(folder / story.id, handover)


def read(folder: Path) -> int:
    """Read every file of every shard: bytes, checksum, JSON."""
    total = 0
    for shard in sorted(folder.iterdir()):
        manifest = json.loads((shard / MANIFEST).read_bytes())
        for name, entry in manifest["files"].items():
            data = (shard / name).read_bytes()
            assert hashlib.sha256(data).hexdigest() == entry["sha256"]
            lines = [data] if name.endswith(".json") else data.splitlines()
            total += sum(len(json.loads(line)) for line in lines)
    return total


def aggregate(folder: Path) -> None:
    """Make one run and its document of all shards."""
    joined = join(load_shards([folder]).shards)
    assert joined.exit_code == 0, joined.problems
    assert len(run_document(joined.run)["stories"]) == SHARDS


def main() -> bool:
    """Print the times and their ratio; tell whether it is within the limit."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        init_repository(root / "repo")
        (root / "shards").mkdir()
        write_shards(root / "shards", Repository(paths=find_repository(root / "repo"), version=()))
        ways: dict[str, Callable[[], object]] = {
            "read": lambda: read(root / "shards"),
            "aggregate": lambda: aggregate(root / "shards"),
        }
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(ROUNDS):
            for way, once in ways.items():
                begun = time.process_time()
                once()
                best[way] = min(best[way], time.process_time() - begun)
    ratio = best["aggregate"] / best["read"]
    record.compare("shards", f"{SHARDS} joined / their files read", [ratio], LIMIT)
    verdict = "ok" if ratio <= LIMIT else "too slow"
    lines = [f"{way:10}{seconds * 1e3:8.1f} ms" for way, seconds in best.items()]
    lines.append(f"{SHARDS} shards joined / their files read: {ratio:.2f}, at most {LIMIT:g}: {verdict}")
    sys.stdout.write("\n".join(lines) + "\n")
    return ratio <= LIMIT


if __name__ == "__main__":
    main()
