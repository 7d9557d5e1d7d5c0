"""A run as JUnit XML: one suite per story, one case per session, and one for the result.

A story that failed is one failure, of the case `verdict`, with its reason and the end of what was printed.
The cases of its sessions pass, and their output says how each of them ended.
"""

from xml.etree import ElementTree as ET

from isolation.patterns import pattern
from runner.core.limits.kill_switches import ORDERLY
from runner.core.model import Outcome, SessionRecord, Status, StorySnapshot
from runner.core.text.instants import iso
from runner.core.text.screen import neutral
from runner.core.text.words import because, recovery
from runner.report.report_data import ReportData, decisive_session, seconds

TAIL = 2000
VERDICT = "verdict"
_ILLEGAL = pattern("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FINE = frozenset({Outcome.OK, Outcome.PARTIAL, Outcome.ASKS})
_FORGIVEN = frozenset({Status.DONE, Status.NO_WORK})


def junit(data: ReportData) -> str:
    """Return the whole document."""
    root = ET.Element("testsuites", name="autopilot-multi")
    suites = [_suite(data, story) for story in data.run.stories.values()]
    for name in ("tests", "failures", "errors"):  # the common schema has no total for skipped
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    root.set("time", f"{seconds(data.run.started_at, data.until):.3f}")
    root.extend(suites)
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(data: ReportData, story: StorySnapshot) -> ET.Element:
    cases = [_session(data, story, number, one) for number, one in enumerate(story.sessions, 1)]
    cases.append(_verdict(data, story))
    suite = ET.Element("testsuite", name=_clean(story.id))
    suite.set("tests", str(len(cases)))
    for name, tag in {"failures": "failure", "errors": "error", "skipped": "skipped"}.items():
        suite.set(name, str(sum(1 for case in cases if case.find(tag) is not None)))
    suite.set("time", f"{data.duration(story):.3f}")
    suite.set("timestamp", iso(story.started_at or data.run.started_at).removesuffix("Z"))
    facts = {
        "title": story.title,
        "repo": story.repo,
        "branch": story.workspace.branch,
        "commit": story.workspace.commit,
    }
    properties = ET.SubElement(suite, "properties")
    for name, value in facts.items():
        if value:
            ET.SubElement(properties, "property", name=name, value=_clean(value))
    suite.extend(cases)
    return suite


def _session(data: ReportData, story: StorySnapshot, number: int, session: SessionRecord) -> ET.Element:
    name = f"{number} {session.step.name}, attempt {session.attempt}"
    running = data.is_running(story, session)
    case = _case(story, name, seconds(session.started_at, data.until if running else session.ended_at))
    tail = data.tail(session, TAIL)
    if running:
        ET.SubElement(case, "skipped", message=data.outcome(story, session))
    elif session.outcome not in _FINE:
        outcome = data.outcome(story, session)
        said = f"{outcome}: {session.detail}" if session.detail else outcome
        later = " (a later session succeeded)" if story.status in _FORGIVEN else ""
        tail = f"{said}{later}\n{tail}"
    if tail:
        ET.SubElement(case, "system-out").text = _text(tail)
    return case


def _verdict(data: ReportData, story: StorySnapshot) -> ET.Element:
    case = _case(story, VERDICT, 0.0)
    message, kind = _clean(because(story)), story.status.value
    hint = _clean(recovery(story.kill_switch))
    match story.status:
        case Status.DONE:
            pass
        case Status.FAILED:
            ET.SubElement(case, "failure", message=message, type=kind).text = _explained(data, story)
        case Status.SKIPPED | Status.PARKED | Status.NO_WORK:
            ET.SubElement(case, "skipped", message=message)
        case Status.RUNNING | Status.WAITING | Status.QUEUED if data.in_progress:
            ET.SubElement(case, "skipped", message=f"{kind}; the run is still in progress")
        case Status.STOPPED if story.kill_switch is not None and story.kill_switch.name in ORDERLY:
            ET.SubElement(case, "skipped", message=message).text = hint
        case Status.STOPPED | Status.RUNNING | Status.WAITING | Status.QUEUED:
            found = ET.SubElement(case, "error", message=message or kind, type=kind)
            found.text = "\n".join(part for part in (hint, _explained(data, story)) if part)
    return case


def _explained(data: ReportData, story: StorySnapshot) -> str:
    """Return what a reader of the failure needs: the reason, and the end of the session that decided it."""
    session = decisive_session(story)
    tail = data.tail(session, TAIL) if session else ""
    following = f"next: {story.next}" if story.next else ""
    return _text("\n".join(part for part in (because(story), following, tail) if part))


def _case(story: StorySnapshot, name: str, time: float) -> ET.Element:
    return ET.Element("testcase", classname=_clean(story.id), name=_clean(name), time=f"{time:.3f}")


def _clean(text: str) -> str:
    return _ILLEGAL.sub("", neutral(text))


def _text(text: str) -> str:
    return "\n".join(map(_clean, text.split("\n")))
