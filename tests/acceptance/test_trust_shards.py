"""A run that came by shards brings no command: what runs here is what is written here, or agreed to here."""

import json
from pathlib import Path
from typing import Any

import pytest

from runner.cli.overview import COMMANDS
from tests.acceptance.ci import Ci, Stories, forge, make_ci, nothing
from tests.acceptance.program import Ran, answered, run
from tests.acceptance.test_real_start import ARGUMENTS
from tests.conftest import git

STORIES: Stories = {
    "known": {"command": "echo a > known.txt", "verify": ["test -e known.txt"]},
    "gone": {"command": "echo a > gone.txt", "verify": ["test -e gone.txt"]},
    "failing": {"command": "exit 1"},
}
ASKING = {"AUTOPILOT_MULTI_TRUST": "ask"}
NOT_OPENED = {"demo", "init"}
"""What makes a repository or a file of its own, and does not read a run."""


class Desk:
    """The checkout of somebody who fetches what CI jobs have left, with one shard after the other forged."""

    def __init__(self, ci: Ci, trace: Path) -> None:
        self.trace = trace
        self.evil = f"echo x >> {trace}"
        for name in STORIES:
            ci.run(name, *ci.story_job(name))
            shard = ci.shards / name
            forge(shard, nothing, events=self._forged(shard))
        self.top = ci.clone("desk")
        git(self.top, "checkout", "-q", "-B", "main")
        git(self.top, "rm", "-q", "stories/gone.md")
        git(self.top, "commit", "-q", "-m", "gone")
        joined = run(self.top, "aggregate", str(ci.shards), "--into-repo", "--branches", env=ASKING)
        assert "imported" in joined.err, joined.err

    def _forged(self, shard: Path) -> bytes:
        """Fill everything that can name a command with one that leaves a trace."""
        lines = [json.loads(line) for line in (shard / "events.ndjson").read_text().splitlines()]
        for line in lines:
            data: dict[str, Any] = line["data"]
            if "options" in data:
                options = data["options"]
                options |= {key: [self.evil] for key in ("verify", "land_verify")}
                options |= dict.fromkeys(("notify", "selector", "tracker_auth"), self.evil)
                options |= {"trust": "always", "land": True, "guard": False, "agent": "mine"}
                options["hooks"] = dict.fromkeys(options["hooks"], self.evil)
                options["agents"] = {"mine": {"argv": ["sh", "-c", self.evil]}}
                for story in data["stories"]:
                    story |= {"command": ["sh", "-c", self.evil], "verify": [self.evil]}
                    story["source"] = "command line"
        return "".join(f"{json.dumps(line)}\n" for line in lines).encode()

    def run(self, *words: str) -> Ran:
        """Run the program here, without any consent from outside."""
        return run(self.top, *words, env=ASKING)


def refused(ran: Ran) -> bool:
    """Whether the program asked for the user's agreement, and did nothing else."""
    return ran.code == 1 and ran.document["error"]["code"] == "trust"


def test_shards_bring_no_command(tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command once after a hostile import leaves no trace; then what is written here counts.

    A story that is known here has its own commands. Those of another one run once the user agrees to them.
    """
    desk = Desk(make_ci(tmp_path, repo, STORIES), tmp_path / "trace")
    for name in COMMANDS.keys() - NOT_OPENED:
        words = {"trust": (), "prompt": ("known",), "logs": ("known",)}.get(name, ARGUMENTS[name])
        ran = desk.run(name, *words)
        assert "Traceback" not in ran.err, ran.err
        assert not desk.trace.exists(), f"{name}: {ran.out}{ran.err}"
    for asked in (("resume", "--retry-failed"), ("land", "--yes", "--resolve")):
        ran = desk.run(*asked, "--json")
        assert refused(ran), f"{asked}: {ran.out}{ran.err}"
    message = desk.run("land", "--json").document["error"]["message"]
    assert f"story: verify `{desk.evil}` (shards of run " in message
    assert "story: verify `test -e known.txt` (stories/known.md:" in message

    monkeypatch.setenv("AUTOPILOT_MULTI_TRUST", "ask")
    code, shown = answered(desk.top, "land", "known", typed="y\n")
    assert code == 0, shown
    assert "landed 1 story on main: known" in shown
    (desk.top / "stories/failing.md").write_text('---\ncommand: "echo here > here.txt"\n---\nDo it.\n')
    code, shown = answered(desk.top, "resume", "--retry-failed", typed="y\n")
    assert "came by shards: it continues with the settings of this repository" in shown
    assert git(desk.top, "show", "autopilot/failing:here.txt") == "here\n"
    assert not desk.trace.exists(), "neither its settings nor its commands were used"
    assert refused(desk.run("land", "gone", "--json"))
    assert not desk.trace.exists()
    assert desk.run("trust", "--yes").code == 0
    assert desk.run("land", "gone", "--json").data["landed"] == ["gone"]
    assert desk.trace.exists()
