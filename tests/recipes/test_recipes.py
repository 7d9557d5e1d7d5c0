"""The recipes of CONTRIBUTING.md, followed to the letter: the files they name are enough."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, write_story, writes
from tests.conftest import git
from tests.recipes.scratch import ROOT, Scratch, copy_project, recipes

PARROT = '''"""Parrot, a stand-in that repeats its prompt."""

import json

from runner.agents.known_agent import KnownAgent, SignIn
from runner.agents.protocol import AgentJob, Launch, Traits
from runner.core.limits.agent_output import AgentUpdate, Final


class ParrotAgent(KnownAgent):
    """Starts and reads `parrot`."""

    name = "parrot"
    package = "parrot"
    sign_in = SignIn(variables=("PARROT_KEY",))
    traits = Traits(streams=True, says_end=True)

    def launch(self, job: AgentJob) -> Launch:
        """Begin a session."""
        return Launch(argv=("parrot", "--json", *self._settings.args), env=self._settings.env)

    def parse(self, line: bytes) -> AgentUpdate | None:
        """Read one line."""
        try:
            event = json.loads(line)
        except ValueError:
            return None
        return AgentUpdate(message=event["says"], final=Final(ok=True))
'''
PARROT_PROGRAM = """#!/bin/sh
cat > repeated.txt
echo '{"says": "repeated"}'
"""
SETTING = """    greeting: Annotated[
        str,
        Setting(
            help="how sessions are greeted",
            flag="--greeting WORD",
            choices=("hello", "hi"),
        ),
    ] = "hello"
"""
SWITCH = """    SECOND_SESSION = ("second-session", "give the story a better prompt, then resume.")
"""
CONDITION = """            Switch.SECOND_SESSION: "one is enough" if facts.loop_sessions else None,
"""
LEVEL = '''class Watch(Detect):
    """The same as detect, under another name."""

    name = EnforcementLevel.WATCH


'''
TABLE = '''"""A run as comma-separated values."""

from runner.report.report_data import ReportData


def table(data: ReportData) -> str:
    """Return one line for each story."""
    return "".join(f"{story.id},{story.status}\\n" for story in data.run.stories.values())
'''
COMMAND = '''"""Print a greeting.

It is the same for all repositories.
"""

import argparse

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi hello"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `hello`."""
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Print it."""
    output.document({"greeting": "hello"})
    output.answer("hello")
    return 0
'''


@pytest.fixture
def follow(tmp_path: Path) -> Callable[[str], Scratch]:
    """Copy the project to follow one recipe in it."""
    return lambda recipe: copy_project(tmp_path / "project", recipe)


def test_every_recipe_names_one_or_two_files_that_exist() -> None:
    """New files have a placeholder; their folder exists, or begins with one."""
    found = recipes()
    assert set(found) == {
        "Add an agent",
        "Add a kill-switch",
        "Add a setting",
        "Add a report format",
        "Add an enforcement level",
        "Add a command",
    }
    for recipe, files in found.items():
        assert 1 <= len(files) <= 2, recipe
        for file in files:
            assert "NAME" in file or (ROOT / file).is_file(), f"{recipe}: {file}"


def test_a_file_that_the_recipe_does_not_name_is_refused(follow: Callable[[str], Scratch]) -> None:
    """The proof is worth something: another file cannot be touched, and a change of one is seen."""
    scratch = follow("Add a setting")
    with pytest.raises(AssertionError, match="does not name"):
        scratch.insert("runner/core/model.py", "x = 1\n", before="class")
    (scratch.root / "runner" / "core" / "model.py").write_text("")
    assert "runner/core/model.py" in scratch.changed()


def test_add_an_agent(follow: Callable[[str], Scratch], repo: Path, tmp_path: Path) -> None:
    """One file and one line: it is started, its output is read, the doctor knows it, a slip finds it."""
    scratch = follow("Add an agent")
    scratch.create("runner/agents/known/parrot.py", PARROT)
    catalog = "runner/agents/catalog.py"
    scratch.insert(
        catalog, "from runner.agents.known.parrot import ParrotAgent\n", before="from runner.agents.known.q"
    )
    scratch.insert(catalog, "    ParrotAgent,\n", before="    ClaudeAgent,")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "parrot").write_text(PARROT_PROGRAM)
    (programs / "parrot").chmod(0o755)
    write_story(repo, "a", body="Polly wants a cracker.")
    commit_stories(repo)
    ran = scratch.run(repo, "run", "--json", path=programs)
    assert ran.code == 0, ran.err
    assert "Polly wants a cracker." in git(repo, "show", "autopilot/a:repeated.txt")
    assert "parrot" in scratch.run(repo, "doctor", "--json", path=programs).out
    missed = scratch.run(repo, "plan", "--again", "--agent", "parot", "--json", path=programs)
    assert "parrot" in missed.document["error"]["hint"]
    assert scratch.changed() == {"runner/agents/known/parrot.py", catalog}


def test_add_a_setting(follow: Callable[[str], Scratch], repo: Path) -> None:
    """One declaration: file, flag, check, `config`, help, journal and the reference page follow."""
    scratch = follow("Add a setting")
    scratch.insert("runner/core/settings.py", SETTING, before="    base: ")
    write_story(repo, "a", command=writes("a.txt"))
    (repo / "autopilot-multi.toml").write_text('greeting = "hi"\n')
    commit_stories(repo)
    shown = scratch.run(repo, "config", "--json")
    assert '"hi"' in json.dumps(shown.data), shown.err
    assert "--greeting WORD" in scratch.run(repo, "run", "--help").out
    wrong = scratch.run(repo, "run", "--greeting", "hey", "--json")
    assert wrong.code == 1
    assert "hello" in wrong.document["error"]["message"] + wrong.document["error"]["hint"]
    assert scratch.run(repo, "run", "--greeting", "hello").code == 0
    pages = scratch.write_docs()
    assert "--greeting WORD" in pages
    assert "`AUTOPILOT_MULTI_GREETING`" in pages
    assert scratch.changed() == {"runner/core/settings.py"}


def test_add_a_kill_switch(follow: Callable[[str], Scratch], repo: Path) -> None:
    """One member and one condition: the story is stopped by it, and document, status and history name it."""
    scratch = follow("Add a kill-switch")
    rules = "runner/core/limits/kill_switches.py"
    scratch.insert(rules, SWITCH, before="    # Judged after a session.")
    scratch.insert(rules, CONDITION, before="            Switch.LOW_CONFIDENCE:")
    write_story(repo, "a", command="date +%N > a.txt", verify=["false"])
    commit_stories(repo)
    ran = scratch.run(repo, "run", "--json")
    assert ran.code == 2, ran.err
    assert ran.story("a")["status"] == "stopped"
    assert ran.story("a")["kill_switch"]["name"] == "second-session"
    assert ran.story("a")["kill_switch"]["hint"] == "give the story a better prompt, then resume."
    assert "one is enough" in scratch.run(repo, "status").out
    assert scratch.run(repo, "history", "--json").data["summary"]["kill_switches"] == {"second-session": 1}
    assert scratch.changed() == {rules}


def test_add_a_report_format(follow: Callable[[str], Scratch], repo: Path) -> None:
    """One function and one line: `report` offers and writes it."""
    scratch = follow("Add a report format")
    scratch.create("runner/report/table.py", TABLE)
    formats = "runner/report/formats.py"
    scratch.insert(
        formats, "from runner.report.table import table\n", before="from runner.report.report_data"
    )
    scratch.insert(formats, '    "table": Format("comma-separated values", table),\n', before='    "junit"')
    write_story(repo, "a", command=writes("a.txt"))
    write_story(repo, "b", command="false")
    commit_stories(repo)
    assert scratch.run(repo, "run").code == 4
    told = scratch.run(repo, "report", "--format", "table")
    assert sorted(csv.reader(io.StringIO(told.out))) == [["a", "done"], ["b", "failed"]]
    assert "comma-separated values" in scratch.run(repo, "report", "--help").out
    assert scratch.changed() == {"runner/report/table.py", formats}


def test_add_an_enforcement_level(follow: Callable[[str], Scratch], repo: Path) -> None:
    """One member and one class: the setting takes it, the run is under it, the doctor shows it."""
    scratch = follow("Add an enforcement level")
    scratch.insert("isolation/model.py", '    WATCH = "watch"\n', before='    DETECT = "detect"')
    levels = "isolation/shared_tree/levels.py"
    scratch.insert(levels, LEVEL, before="LEVELS: ")
    scratch.replace(levels, "Deny(), Detect()", "Deny(), Watch(), Detect()")
    write_story(repo, "a", command=writes("a.txt"), owns=["a.txt"])
    commit_stories(repo)
    ran = scratch.run(repo, "run", "--bg-isolation=none", "--enforce=watch", "--max-stories=1", "--json")
    assert ran.code == 0, ran.err
    assert ran.data["enforcement"] == "watch"
    assert "watch" in scratch.run(repo, "doctor").out
    assert "watch" in scratch.run(repo, "run", "--help").out
    assert scratch.changed() == {"isolation/model.py", levels}


def test_add_a_command(follow: Callable[[str], Scratch], repo: Path) -> None:
    """One module and one line: help, answer, JSON, completion and the suggestion of near names follow."""
    scratch = follow("Add a command")
    scratch.create("runner/cli/commands/setup/hello.py", COMMAND)
    scratch.insert(
        "runner/cli/overview.py", '        "hello": "print a greeting",\n', before='        "doctor":'
    )
    assert scratch.run(repo, "hello").out == "hello\n"
    assert scratch.run(repo, "hello", "--json").data == {"greeting": "hello"}
    assert "print a greeting" in scratch.run(repo, "--help").out
    assert "hello" in scratch.run(repo, "completion", "bash").out
    assert "## `hello`" in scratch.write_docs()
    assert scratch.changed() == {"runner/cli/commands/setup/hello.py", "runner/cli/overview.py"}
