"""The summary in a merge request: the script of the shipped GitLab template against a scripted GitLab."""

import os
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import yaml

from tests.ci.backlog import EXAMPLE
from tests.forge.scripted_server import Reply, Request, ScriptedService, serving

TOKEN = "glpat-scripted-0123456789"  # noqa: S105  not a real one


class Notes(ScriptedService):
    """The notes of one merge request."""

    prefix = "/api/v4/"

    def __init__(self) -> None:
        super().__init__()
        self.token = TOKEN
        self.notes: list[dict[str, Any]] = [{"id": 1, "body": "a word of somebody"}]
        place = "projects/7/merge_requests/3/notes"
        self.route("GET", place, lambda _: Reply(value=self.notes))
        self.route("POST", place, self._add)
        self.route("PUT", f"{place}/{{id}}", self._edit)

    def _add(self, request: Request) -> Reply:
        self.notes.append({"id": len(self.notes) + 1, "body": request.body["body"]})
        return Reply(value=self.notes[-1], status=201)

    def _edit(self, request: Request, number: str) -> Reply:
        self.notes[int(number) - 1]["body"] = request.body["body"]
        return Reply(value=self.notes[int(number) - 1])


def commented(folder: Path, summary: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the step of the joining job that writes the note."""
    job = yaml.safe_load((EXAMPLE / ".gitlab" / "autopilot.yml").read_text())[".autopilot-join"]
    (step,) = (line for line in job["script"] if "AUTOPILOT_COMMENT_TOKEN" in line)
    (folder / "reports").mkdir(exist_ok=True)
    (folder / "reports" / "summary.md").write_text(summary)
    env = {"PATH": os.environ["PATH"], "CI_PROJECT_ID": "7", "CI_JOB_URL": "https://gitlab.example/-/jobs/9"}
    return subprocess.run(
        ["bash", "-eu", "-c", f"set +u\n{textwrap.dedent(step)}"],
        cwd=folder,
        env=env | variables,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_one_note_in_the_merge_request_is_kept_current(tmp_path: Path) -> None:
    """It is written once and replaced by the next pipeline; without a token or a request nothing is sent."""
    service = Notes()
    with serving(service) as host:
        site = {"CI_API_V4_URL": f"http://{host}/api/v4", "no_proxy": "localhost"}
        whole = site | {"CI_MERGE_REQUEST_IID": "3", "AUTOPILOT_COMMENT_TOKEN": TOKEN}
        for missing in ("CI_MERGE_REQUEST_IID", "AUTOPILOT_COMMENT_TOKEN"):
            given = {name: value for name, value in whole.items() if name != missing}
            assert commented(tmp_path, "## none", **given).returncode == 0
        assert service.book == []
        for text in ("## 1 done", "## 2 done"):
            ran = commented(tmp_path, text, **whole)
            assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
        first, note = service.notes
        assert first["body"] == "a word of somebody"
        assert "## 2 done" in note["body"]
        assert "https://gitlab.example/-/jobs/9/artifacts/browse/reports" in note["body"]
        refused = commented(tmp_path, "## 3 done", **(whole | {"AUTOPILOT_COMMENT_TOKEN": "wrong"}))
    assert refused.returncode == 0
    assert "could not be written" in refused.stdout
    assert "wrong" not in refused.stdout + refused.stderr
