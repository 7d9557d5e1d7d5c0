"""Branches of stories whose history a test writes, as the runner would have written it."""

from collections.abc import Mapping
from pathlib import Path

from isolation.paths import find_repository, journal_path
from runner.core.events import events as ev
from runner.core.events.fold import fold
from runner.core.model import StoryId, StorySnapshot
from runner.records.journal import Journal
from tests.acceptance.written_runs import write_events
from tests.conftest import git
from tests.flows.state.samples import text_of
from tests.records.sample_runs import RUN, event

AUTODEV = "_docs/_autodev_state.md"
PROBLEM, RESEARCH, PLAN, IMPLEMENT = "1 Problem", "2 Research", "3 Plan", "6 Implement"


class Branch:
    """A story's branch whose history a test writes, as the runner would have written it."""

    def __init__(self, repo: Path, story: str = "a", flow: str = "greenfield") -> None:
        self.repo, self.story = repo, story
        self.path = repo.parent / f"{repo.name}.worktrees" / story
        self.name = f"autopilot/{story}"
        git(repo, "worktree", "add", "-q", "-b", self.name, str(self.path))
        base = git(repo, "rev-parse", "HEAD").strip()
        name = StoryId(story)
        entry = {"id": story, "title": "The work", "depends_on": [], "flow": flow}
        begun = ev.RunStarted(
            base=base, isolation="worktree", enforcement="none", max_stories=1, options={}, stories=(entry,)
        )
        opened = ev.WorkspaceOpened(
            story_id=name, branch=self.name, path=str(self.path), base=base, head=base
        )
        ended = ev.StoryFinished(story_id=name, verdict="failed", reason="it gave up")
        bodies: tuple[ev.Body, ...] = (
            begun,
            ev.StoryStarted(story_id=name),
            opened,
            ev.AttemptFailed(story_id=name, attempt=4, reason="no", output=""),
            ended,
            ev.RunEnded(exit_code=3),
        )
        write_events(repo, [event(at, body) for at, body in enumerate(bodies)])

    def write(self, files: Mapping[str, str | None]) -> None:
        """Write files into the worktree; None removes one."""
        for name, text in files.items():
            path = self.path / name
            if text is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, step: str | None, files: Mapping[str, str | None], story: str | None = None) -> str:
        """Commit files as the checkpoint of a step, or as a person does."""
        self.write(files)
        git(self.path, "add", "-A")
        message = f"The work of {step}" if step else "by hand"
        if step:
            message += f"\n\nAutopilot-Run: {RUN}\nAutopilot-Story: {story or self.story}\n"
            message += f"Autopilot-Step: {step}\nAutopilot-Attempt: 1\n"
        git(self.path, "commit", "-q", "-m", message)
        return self.tip

    @property
    def tip(self) -> str:
        """The newest commit of the branch."""
        return git(self.repo, "rev-parse", self.name).strip()

    def tree(self, commit: str | None = None) -> dict[str, str]:
        """Return every file of a commit with its content's id; state files are left out."""
        listed = git(self.repo, "ls-tree", "-r", commit or self.name).splitlines()
        return {line.split("\t")[1]: line.split("\t")[0] for line in listed if "_state.md" not in line}

    def snapshot(self) -> StorySnapshot:
        """Return the story as the journal has it."""
        with Journal.open_readonly(journal_path(find_repository(self.repo).common_dir)) as journal:
            return fold(RUN, journal.events(RUN)).stories[StoryId(self.story)]


def state(step: str, name: str, *, retries: int = 0) -> str:
    """Return an autodev state file that stands at a step of `greenfield`."""
    text = text_of("autodev-plan").replace("step: 3", f"step: {step}", 1)
    text = text.replace("name: Plan", f"name: {name}", 1)
    return text.replace("retry_count: 0", f"retry_count: {retries}")


def after_plan(repo: Path) -> Branch:
    """Return a story of `greenfield` that has been through three steps of documents."""
    made = Branch(repo)
    made.commit(PROBLEM, {"_docs/00_problem/problem.md": "the problem\n", AUTODEV: state("2", "Research")})
    made.commit(
        RESEARCH,
        {
            "_docs/01_solution/solution.md": "first idea\n",
            "_docs/01_solution/solution_draft1.md": "draft\n",
            AUTODEV: state("3", "Plan"),
        },
    )
    made.commit(
        PLAN, {"_docs/02_document/architecture.md": "boxes\n", AUTODEV: state("5", "Decompose", retries=2)}
    )
    return made
