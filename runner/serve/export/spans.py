"""A run as the spans of one trace: the run, its stories, their sessions. Pure: events in, ended spans out.

Ids are computed from the ids of the run, the story and the session, so a run that is killed and resumed, or
exported again, has the same trace with the same spans. A span is complete when it ends and is never changed
afterwards; a story, or a run, that continues after its end gets a further span, with the next `round`.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256

from msgspec import Struct, field

from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.events.fold import EXIT_DONE, apply
from runner.core.model import RunId, RunSnapshot, SessionKind, SessionRecord, Status, StoryId

Value = str | int | float | bool
Attributes = Mapping[str, Value]

_PROVIDERS = {"claude": "anthropic", "codex": "openai", "gemini": "gcp.gemini"}
"""Who serves the model of a known agent, in the words of the semantic conventions."""
_NO_AGENT = frozenset({"", "command", "verify"})
_LONGEST = 500
_FINE = frozenset({Status.DONE, Status.NO_WORK, Status.PARKED})


class Moment(Struct, frozen=True, kw_only=True):
    """Something that happened at one instant of a span."""

    name: str
    at: float
    attributes: Attributes = field(default_factory=dict)


class Span(Struct, frozen=True, kw_only=True):
    """A stretch of time with a name; `problem` is why it counts as an error, empty if it does not.

    `session` is the session that it shows; None for a run or a story.
    """

    trace_id: int
    span_id: int
    parent_id: int | None
    name: str
    start: float
    end: float
    attributes: Attributes = field(default_factory=dict)
    moments: tuple[Moment, ...] = ()
    problem: str = ""
    session: SessionRecord | None = None


class _Open(Struct):
    """A story, or the run, whose span has not ended."""

    round: int = 1
    start: float | None = None
    moments: list[Moment] = field(default_factory=list)

    def end(self) -> None:
        self.round, self.start, self.moments = self.round + 1, None, []


class SpanFold:
    """Turns the events of a run, oldest first, into the spans that each of them ends."""

    def __init__(self, run_id: RunId) -> None:
        self.run = RunSnapshot(run_id=run_id, started_at=0.0)
        self._trace = 0
        self._of_run = _Open()
        self._stories: dict[StoryId, _Open] = {}
        self._last = 0.0

    def add(self, event: ev.Event) -> tuple[Span, ...]:
        """Take one more event; return the spans that it ends."""
        before, self.run = self.run, apply(self.run, event)
        spans = tuple(self._ended(before, event))
        self._last = event.at
        return spans

    def _ended(self, before: RunSnapshot, event: ev.Event) -> Iterator[Span]:  # noqa: C901  one arm per event
        match body := event.body:
            case ev.RunStarted():
                self._trace = _number(16, self.run.run_id, body.base, repr(event.at))
                self._of_run.start = event.at
            case ev.RunResumed():
                yield from self._interrupted(before)
                self._resumed(event.at)
            case ev.RunEnded():
                yield self._run_span(event.at)
                self._of_run.end()
            case ev.StoryStarted():
                story = self._story(body.story_id)
                story.start = event.at if story.start is None else story.start
            case ev.StoryFinished():
                yield from self._story_span(body, event.at)
            case ev.SessionEnded():
                yield from self._session_span(body, event.at)
            case ev.AttemptFailed():
                self._note(
                    body.story_id, event.at, "attempt failed", reason=body.reason, attempt=body.attempt
                )
            case ev.DecisionAsked():
                title = str(body.question.get("title", ""))
                self._note(body.story_id, event.at, "decision asked", decision=body.decision_id, title=title)
            case ev.DecisionAnswered():
                self._note(body.story_id, event.at, "decision answered", letter=body.letter, by=body.by)
            case ag.AgentPaused():
                self._note(body.story_id, event.at, "agent paused", agent=body.agent, reason=body.reason)
            case _:
                pass

    def _resumed(self, at: float) -> None:
        if self._of_run.start is None:
            self._of_run.start = at
        else:
            self._of_run.moments.append(Moment(name="resumed", at=at))

    def _story(self, story_id: StoryId) -> _Open:
        return self._stories.setdefault(story_id, _Open())

    def _note(self, story_id: StoryId, at: float, name: str, **attributes: str | int) -> None:
        values = {
            f"autopilot.{key}": value[:_LONGEST] if isinstance(value, str) else value
            for key, value in attributes.items()
        }
        self._story(story_id).moments.append(Moment(name=name, at=at, attributes=values))

    def _run_span(self, at: float) -> Span:
        run, number = self.run, self._of_run.round
        code = run.exit_code or EXIT_DONE
        return Span(
            trace_id=self._trace,
            span_id=self._run_id(number),
            # A trace has one root: what continues it later hangs below that.
            parent_id=None if number == 1 else self._run_id(1),
            name="run" if number == 1 else "resume",
            start=at if self._of_run.start is None else self._of_run.start,
            end=at,
            attributes={
                "autopilot.run": run.run_id,
                "autopilot.round": number,
                "autopilot.base": run.base,
                "autopilot.isolation": run.isolation,
                "autopilot.stories": len(run.stories),
                "autopilot.exit_code": code,
                **{f"autopilot.stories.{key}": count for key, count in run.counts.items()},
                **_cost(run.usage.cost_usd),
            },
            moments=tuple(self._of_run.moments),
            problem=f"exit code {code}" if code else "",
        )

    def _story_span(self, body: ev.StoryFinished, at: float) -> Iterator[Span]:
        story = self.run.stories.get(body.story_id)
        if story is None:
            return
        shown = self._story(body.story_id)
        yield Span(
            trace_id=self._trace,
            span_id=self._story_id(body.story_id, shown.round),
            parent_id=self._run_id(self._of_run.round),
            name=f"story {story.id}",
            start=at if shown.start is None else shown.start,
            end=at,
            attributes={
                "autopilot.run": self.run.run_id,
                "autopilot.story": story.id,
                "autopilot.title": story.title[:_LONGEST],
                "autopilot.flow": story.flow,
                "autopilot.step": story.step.name,
                "autopilot.attempt": story.progress.attempt,
                "autopilot.round": shown.round,
                "autopilot.outcome": body.verdict,
                "autopilot.reason": body.reason[:_LONGEST],
                "autopilot.branch": story.workspace.branch or "",
                "autopilot.commits": body.commits,
                **_cost(story.usage.cost_usd),
            },
            moments=tuple(shown.moments),
            problem="" if story.status in _FINE else body.reason[:_LONGEST] or body.verdict,
        )
        shown.end()

    def _session_span(self, body: ev.SessionEnded, at: float) -> Iterator[Span]:
        story = self.run.stories.get(body.story_id)
        sessions = story.sessions if story else ()
        for session in sessions:
            if session.id == body.session_id:
                failed = session.outcome is not None and session.outcome.value not in {
                    "ok",
                    "partial",
                    "asks",
                }
                problem = (session.detail or str(session.outcome)) if failed else ""
                yield self._span_of(body.story_id, session, at, problem)

    def _interrupted(self, before: RunSnapshot) -> Iterator[Span]:
        """End the sessions that a killed process left open: at the last instant that the journal knows."""
        for story in before.stories.values():
            for session in story.sessions:
                if session.ended_at is None:
                    yield self._span_of(story.id, session, max(self._last, session.started_at), "interrupted")

    def _span_of(self, story_id: StoryId, session: SessionRecord, at: float, problem: str) -> Span:
        outcome = session.outcome.value if session.outcome else "interrupted"
        return Span(
            trace_id=self._trace,
            span_id=_number(8, self._trace, "session", session.id),
            parent_id=self._story_id(story_id, self._story(story_id).round),
            name=_session_name(session),
            start=session.started_at,
            end=at,
            attributes={
                **_conventions(session),
                "autopilot.run": self.run.run_id,
                "autopilot.story": story_id,
                "autopilot.session": session.id,
                "autopilot.session.kind": session.kind.value,
                "autopilot.step": session.step.name,
                "autopilot.attempt": session.attempt,
                "autopilot.outcome": outcome,
                **({} if session.exit_code is None else {"autopilot.exit_code": session.exit_code}),
                **({} if session.tools is None else {"autopilot.tool_calls": session.tools}),
                **_cost(session.usage.cost_usd),
            },
            problem=problem[:_LONGEST],
            session=session,
        )

    def _run_id(self, number: int) -> int:
        return _number(8, self._trace, "run", number)

    def _story_id(self, story_id: StoryId, number: int) -> int:
        return _number(8, self._trace, "story", story_id, number)


def child_id(span: Span, name: str, number: int) -> int:
    """Return the id of something inside a span, such as a tool call."""
    return _number(8, span.trace_id, span.span_id, name, number)


def has_agent(session: SessionRecord) -> bool:
    """Whether an agent worked in a session, and not a command."""
    return session.kind is not SessionKind.VERIFY and session.agent not in _NO_AGENT


def _number(size: int, *parts: object) -> int:
    """Return a number of so many bytes for these parts; 0 is no valid id, and no hash that we will meet."""
    return int.from_bytes(sha256("\0".join(map(str, parts)).encode("utf-8", "replace")).digest()[:size])


def _session_name(session: SessionRecord) -> str:
    return f"invoke_agent {session.agent}" if has_agent(session) else session.kind.value


def _conventions(session: SessionRecord) -> dict[str, Value]:
    """Return the attributes by which any tool recognizes the work of a model."""
    if not has_agent(session):
        return {}
    service, slash, _ = session.model.partition("/")
    provider = _PROVIDERS.get(session.agent) or (service if slash else session.agent)
    usage = session.usage
    known: dict[str, Value | None] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": provider,
        "gen_ai.system": provider,
        "gen_ai.agent.name": session.agent,
        "gen_ai.request.model": session.model or None,
        "gen_ai.conversation.id": session.conversation or None,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
    }
    return {name: value for name, value in known.items() if value is not None}


def _cost(amount: float | None) -> dict[str, Value]:
    return {} if amount is None else {"autopilot.cost_usd": amount}
