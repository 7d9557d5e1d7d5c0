"""The text of a draft: from a template, ours or the user's, with what is known of its story.

Our part stands between two marks that a forge does not show; what people write around it stays. Words of
agents and stories are escaped: they neither format the page, nor mention anybody, nor refer to an issue.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from msgspec import Struct

from isolation.git.diffstat import ChangedPath
from isolation.patterns import pattern
from runner.core.errors import SettingsError
from runner.core.model import Outcome, SessionKind, SessionRecord, Status, StorySnapshot
from runner.core.text.instants import span
from runner.core.text.names import did_you_mean, one_line
from runner.core.text.screen import shorten
from runner.core.text.words import count, label
from runner.forge.drafts.hosted import MARK
from runner.report.markdown import escaped
from runner.report.report_data import usage_text

BEGIN, END = f"{MARK}begin -->", f"{MARK}end -->"
LIMIT = 60_000
"""How many characters our part may have; GitHub takes 65,536 in all."""
TITLE = 200
PARTS = (
    "id",
    "title",
    "status",
    "done",
    "commits",
    "changes",
    "verify",
    "cost",
    "stack",
    "report",
    "trailers",
)
"""The names that a template can contain."""

DEFAULT = """\
$status

$done

$commits

$changes

$verify

$cost

$stack

$report

$trailers
"""
_MOST_FILES, _MOST_COMMITS, _NOTES = 40, 30, 1500
_ALONE = pattern(r"^[ \t]*\$(?:\{(\w+)\}|(\w+))[ \t]*(?:\n+|\Z)", re.MULTILINE)


class DraftFacts(Struct, frozen=True, kw_only=True):
    """What the text of a draft is made of.

    `verify` are the commands, `commits` subjects, `stack` the drafts that it builds on, as `#12`, and
    `report` where the report of the run can be read, empty if nowhere.
    """

    run_id: str
    story: StorySnapshot
    verify: Sequence[str] = ()
    commits: Sequence[str] = ()
    changes: Sequence[ChangedPath] = ()
    stack: Sequence[str] = ()
    report: str = ""


def title_of(story: StorySnapshot) -> str:
    """Return the title of a draft."""
    return shorten(one_line(story.title) or story.id, TITLE).strip()


def load_template(top: Path, name: str) -> str:
    """Read the user's template, or return ours; an unusable one is refused, with the reason."""
    if not name:
        return DEFAULT
    path = top / name
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingsError(
            f"draft-template: cannot read {path}: {reason}",
            hint="name a file relative to the top of the repository, or omit the setting.",
        ) from error
    template = Template(text)
    if not template.is_valid():
        raise SettingsError(
            f"draft-template: {path} has a `$` without a name after it", hint="write a dollar sign as `$$`."
        )
    for unknown in sorted(set(template.get_identifiers()) - set(PARTS)):
        hint = did_you_mean(unknown, PARTS) or f"known names: {', '.join(PARTS)}."
        raise SettingsError(f"draft-template: {path} has the unknown name ${unknown}", hint=hint)
    return text


def render(facts: DraftFacts, template: str) -> str:
    """Return our part of the text, with its marks; a line of nothing but an empty part is dropped."""
    parts = _parts(facts)
    shaped = _ALONE.sub(lambda line: line[0] if parts[line[1] or line[2]] else "", template)
    text = Template(shaped).substitute(parts).strip()
    if len(text) > LIMIT:
        text = f"{text[:LIMIT]}\n\n[… the rest was too long]\n\n{parts['trailers']}"
    return f"{BEGIN}\n{text}\n{END}"


def joined(there: str, ours: str) -> str:
    """Return the text of a draft with our part replaced, or added at the end; the rest belongs to people."""
    before, begin, rest = there.replace("\r\n", "\n").partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        return f"{before}{ours}{after}"
    return f"{there.rstrip()}\n\n{ours}" if there.strip() else ours


def inert(text: str) -> str:
    """Return words of unknown origin as one line that mentions and formats nothing."""
    return escaped(one_line(text)).replace("@", "@\u200b")


def _parts(facts: DraftFacts) -> Mapping[str, str]:
    story = facts.story
    return {
        "id": story.id,
        "title": inert(story.title),
        "status": _status(story),
        "done": _done(story),
        "commits": _listed("Commits", [f"- {inert(subject)}" for subject in facts.commits], _MOST_COMMITS),
        "changes": _listed("Files", [_changed(one) for one in facts.changes], _MOST_FILES),
        "verify": _verify(story, facts.verify),
        "cost": _cost(story),
        "stack": f"Builds on {', '.join(facts.stack)}; read only what is new here." if facts.stack else "",
        "report": f"[Report of the run]({facts.report})" if facts.report else "",
        "trailers": f"Autopilot-Run: {facts.run_id}\nAutopilot-Story: {story.id}",
    }


def _status(story: StorySnapshot) -> str:
    match story.status:
        case Status.DONE:
            return "**Done and verified** by autopilot-multi; not reviewed by a person yet."
        case Status.RUNNING | Status.QUEUED | Status.WAITING:
            return "**In progress**: agents of autopilot-multi still work on this."
        case _:
            return f"**{label(story.status).capitalize()}**: {inert(shorten(story.reason, _NOTES))}"


def _done(story: StorySnapshot) -> str:
    """Return what the newest session says that it did, as a quotation."""
    worked = [one for one in story.sessions if one.kind is SessionKind.WORK and one.notes.strip()]
    if not worked:
        return ""
    return f"### What was done\n\n> {inert(shorten(one_line(worked[-1].notes), _NOTES))}"


def _changed(one: ChangedPath) -> str:
    size = "binary" if one.added is None or one.removed is None else f"+{one.added}, -{one.removed}"
    return f"- {inert(one.path)} ({size})"


def _verify(story: StorySnapshot, commands: Sequence[str]) -> str:
    """Return how the verify commands ended in the newest attempt; those that did not run yet say so."""
    ended = _of_last_attempt(story)
    lines = []
    for number, command in enumerate(commands):
        shown = one_line(command).replace("`", "'").replace("@", "@\u200b")
        lines.append(f"- `{shown}`: {_outcome(ended[number]) if number < len(ended) else 'not run'}")
    return "### Verify\n\n" + "\n".join(lines) if lines else ""


def _of_last_attempt(story: StorySnapshot) -> list[SessionRecord]:
    found: list[SessionRecord] = []
    for session in reversed(story.sessions):
        if session.kind is SessionKind.WORK:
            break
        if session.kind is SessionKind.VERIFY:
            found.insert(0, session)
    return found


def _outcome(session: SessionRecord) -> str:
    if session.outcome is None or session.ended_at is None:
        return "running"
    took = span(max(0.0, session.ended_at - session.started_at))
    return f"passed in {took}" if session.outcome is Outcome.OK else f"failed after {took}"


def _cost(story: StorySnapshot) -> str:
    sessions = count(len(story.sessions), "session")
    spent = usage_text(story.usage)
    return f"Cost: {sessions}{f', {spent}' if spent else ''}."


def _listed(title: str, lines: Sequence[str], most: int) -> str:
    if not lines:
        return ""
    more = [f"- and {len(lines) - most} more"] if len(lines) > most else []
    return "\n".join([f"### {title}", "", *lines[:most], *more])
