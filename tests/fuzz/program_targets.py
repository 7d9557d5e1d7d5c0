"""Targets for what the program is started with and finds around it: arguments, journals, processes."""

import contextlib
import io
import json
from importlib import import_module

from runner.agents.catalog import PROGRAMS
from runner.agents.installed import _version
from runner.cli.main import _command
from runner.cli.overview import module_of
from runner.cli.parser import CommandLineError, parse
from runner.cli.run_options import flags_of
from runner.core.errors import JournalError, NotFoundError, RunnerError
from runner.core.events.events import Event, RunStarted, decode
from runner.core.events.fold import fold
from runner.core.events.story_json import require_entry
from runner.core.landing import message
from runner.core.limits.agent_sessions import agents_among, sessions
from runner.core.model import RunId
from runner.core.trust import Asked
from runner.machine.peers import _of_procfs
from runner.plan.settings.load import load_settings
from runner.plan.trust.lines import with_lines
from runner.plan.ways_out.checkout import Checkout
from runner.plan.ways_out.python import _in_site
from runner.records.journal import Journal
from runner.run.control.requests import UnknownRequestError
from runner.run.control.requests import decode as decode_request
from tests.fuzz.record_targets import WRONG_EVENT
from tests.fuzz.registry import folder, target, text_of, written


@target(CommandLineError, RunnerError)
def command_line(data: bytes) -> None:
    """The arguments of any command, one per line; those of `run` are settings, too."""
    argv = [line for line in text_of(data).replace("\0", "").split("\n") if line]
    name, rest = _command(argv)
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            arguments = parse(name, import_module(module_of(name)), rest)
        except SystemExit:  # for help; anything else is an error of ours
            return
    if name == "run":
        load_settings(top=folder(), flags=flags_of(arguments), environ={})


@target(JournalError, NotFoundError)
def journal_file(data: bytes) -> None:
    """A damaged journal, with what other terminals have asked of its run."""
    with Journal.open_readonly(written(data, "journal/journal.db")) as journal:
        for run_id in journal.runs()[:3]:
            for request in journal.requests_after(run_id):
                with contextlib.suppress(UnknownRequestError):
                    decode_request(request)
            journal.events(run_id)
        journal.landings()


@target(*WRONG_EVENT)
def journal_fold(data: bytes) -> None:
    """The events of a run, one per line, as `status` reads them: what can be read can be shown."""
    lines = [line.partition(b" ") for line in data.split(b"\n")]
    bodies = [decode(text_of(kind), json.loads(values)) for kind, _, values in lines]
    for body in bodies:
        for entry in body.stories if isinstance(body, RunStarted) else ():
            require_entry(entry)
    events = [Event(run_id=RunId("r"), at=float(at), body=body) for at, body in enumerate(bodies)]
    fold(RunId("r"), events)


@target()
def landing_message(data: bytes) -> None:
    template, _, title = text_of(data).partition("\n=====\n")
    if not message.flaw(template):
        values = dict.fromkeys(message.PLACEHOLDERS, title)
        assert message.filled(template, values).endswith("\n")


@target()
def process_table(data: bytes) -> None:
    """What `/proc` says of processes, whose names and arguments are anybody's."""
    for number, part in enumerate(data.split(b"\n=====\n")[:4], 100):
        stat, _, argv = part.partition(b"\n")
        written(stat, f"processes/{number}/stat")
        written(argv, f"processes/{number}/cmdline")
    table = _of_procfs(str(folder() / "processes"))
    if table is not None:
        agents = agents_among({pid: table.argv(pid) for pid in table.names}, PROGRAMS)
        sessions(agents, set(), table.parents)


@target()
def installed_packages(data: bytes) -> None:
    """What installers and npm leave in the folders of environments and programs."""
    site = folder() / "site"
    for name in ("some.pth", "other.egg-link", "sitecustomize.py", "some-1.dist-info/direct_url.json"):
        written(data, f"site/{name}")
    list(_in_site(site, "PATH", Checkout((folder(),), ())))
    _version(written(data, "programs/package.json").with_name("claude"), "@anthropic-ai/claude-code")


@target()
def trust_lines(data: bytes) -> None:
    """Where a command is written in a story or a flow, for the list that the user agrees to."""
    text = text_of(data)
    for name in ("stories/one.md", "stories/all.yaml", "stories/all.toml#2", "flows/own.toml"):
        path = written(data, name.partition("#")[0])
        kinds = ("story: command", "story: verify", "story: agent", "flow own, step 1: command")
        asked = [Asked(what=kind, value=text[-30:], places=(name,)) for kind in kinds]
        for one in with_lines(folder(), asked):
            assert one.where.startswith(name.partition("#")[0])
        path.unlink()
