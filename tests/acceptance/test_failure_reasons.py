"""Why a story failed is said wherever its status is: who failed, and the line of the output that tells."""

from pathlib import Path

from runner.cli.live.panes import about
from runner.core.model import StoryId
from runner.report.terminal.live_table import detail_of
from runner.run.control.reader import RunReader
from runner.serve.web.board import card
from runner.serve.web.source import Seen
from tests.acceptance.program import run, write_story

SETTINGS = """
base-check = "off"
max-attempts = 1
[agents.mine]
argv = ["sh", "-c", "echo starting; echo 'fatal: no database' >&2; echo bye; exit 1"]
[hooks]
before_run = '''
test $AUTOPILOT_STORY_ID != hooked || { cat no-lockfile; echo bye; exit 1; }
'''
"""
FAILURES = {
    "checked": ("verify `sh check.sh`: exit code 1", "E assert 3 == 4"),
    "asked": ("session of mine: exit code 1", "fatal: no database"),
    "ran": ("its command: exit code 1", "error: no such table"),
    "hooked": ("hook before_run failed (exit code 1)", "cat: no-lockfile: No such file or directory"),
}


def test_every_face_says_who_failed_and_the_line_that_tells(repo: Path) -> None:
    """A verify command, an agent, a story's own command and a hook: nobody needs a log for the first look."""
    (repo / "autopilot-multi.toml").write_text(SETTINGS)
    check = "printf 'echo E assert 3 == 4\\necho bye\\nexit 1\\n' > check.sh"
    write_story(repo, "checked", command=check, verify=["sh check.sh"])
    write_story(repo, "asked", agent="mine")
    write_story(repo, "ran", command="echo error: no such table; echo bye; exit 1")
    write_story(repo, "hooked", command="true")
    ran = run(repo)
    with RunReader(str(repo)) as reader:
        now = reader.read().run
    for name, (who, line) in FAILURES.items():
        story = now.stories[StoryId(name)]
        block = ran.out.partition(f"{name} failed: ")[2].partition("\n\n")[0]
        faces = {
            "show": run(repo, "show", name).out,
            "dashboard": detail_of(now, story, 0.0),
            "pane": "\n".join(about(story, now, 0.0)),
            "page": card(Seen(run=now, alive=False), story, 0.0).reason,
            "report": block.replace("verify failed, exit code 1\n    $ sh check.sh", who),
        }
        for face, shown in faces.items():
            assert who in shown, f"{face} of {name}: {shown}"
            assert line in shown, f"{face} of {name}: {shown}"
        assert line in ran.err, f"the narration of {name}"
