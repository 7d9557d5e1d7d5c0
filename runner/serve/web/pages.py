"""The pages: each reads what it shows, draws it once, and names the stream of what changes later."""

import os
from collections.abc import Callable
from typing import Any

from markupsafe import Markup
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from trio import to_thread

from isolation.git.diffstat import changes, diff
from isolation.git.repository import Repository
from runner.core.errors import NotFoundError
from runner.core.model import StoryId, StorySnapshot
from runner.core.past_runs import past_runs, summary
from runner.core.text.names import did_you_mean
from runner.core.text.screen import neutral
from runner.plan.setting_rows import rows_of, shown
from runner.plan.settings.load import load_settings
from runner.records.telemetry import load_newest_loops, records_checkout
from runner.report.html.cards import diff_command
from runner.report.html.output import folded_diff
from runner.run.several.places import repository_of
from runner.serve.export.prometheus import CONTENT_TYPE, metrics_text
from runner.serve.web import plots
from runner.serve.web.board import COLUMNS, text
from runner.serve.web.live import MOST_WATCHERS, Hub, Stream
from runner.serve.web.log_view import LogTail, found_in
from runner.serve.web.notices import Notices
from runner.serve.web.render import render, static
from runner.serve.web.source import Seen, Source
from runner.serve.web.views import BoardView, Frame, LandingView, StoryView, TimelineView, View, drawn

MOST_RUNS = 60
DIFF_LINES, DIFF_BYTES = 3000, 400_000
MOST_COMMITS = 50
MOST_PROMPT = 100_000


class Pages(Struct, frozen=True, kw_only=True):
    """Answers GET requests."""

    source: Source
    hub: Hub
    frame: Frame
    notices: Notices

    async def board(self, request: Request) -> Response:
        """Show the board."""
        view = BoardView(run=_run(request))
        return await self._page(request, "board.html", view, lists=view.lists, columns=COLUMNS)

    async def story(self, request: Request) -> Response:
        """Show one story."""
        view = StoryView(
            run=_run(request),
            story_id=StoryId(request.path_params["story"]),
            session=_number(request, "session"),
        )
        find = request.query_params.get("find", "")[:200]

        def more(seen: Seen) -> dict[str, Any]:
            story = _require(seen, view.story_id)
            return {"story": story, "find": find, **self._log(seen, view, find), **self._work(seen, story)}

        return await self._page(request, "story.html", view, more=more)

    async def landing(self, request: Request) -> Response:
        """Show the landing train."""
        return await self._page(request, "landing.html", LandingView(run=_run(request)))

    async def timeline(self, request: Request) -> Response:
        """Show what ran when."""
        view = TimelineView(source=self.source, run=_run(request))
        return await self._page(request, "timeline.html", view)

    async def add(self, request: Request) -> Response:
        """Show the form for a new story."""
        seen = await to_thread.run_sync(self.source.see)
        known = list(seen.run.stories) if seen else []
        return self._html(request, "add.html", active=seen is not None and seen.active, known=known)

    async def runs(self, request: Request) -> Response:
        """Show past runs."""

        def read() -> dict[str, Any]:
            records, number = load_newest_loops(records_checkout(self.source.paths), MOST_RUNS)
            found = past_runs(records)
            drawings = {"cost": plots.cost_plot(found), "success": plots.success_plot(found)}
            safe = {name: Markup(svg) for name, svg in drawings.items()}  # noqa: S704  escaped there
            return {"runs": found, "total": summary(found), "plots": safe, "older": number - len(found)}

        return self._html(request, "runs.html", **await to_thread.run_sync(read))

    async def settings(self, request: Request) -> Response:
        """Show the settings and where they came from."""

        def read() -> dict[str, Any]:
            loaded = load_settings(top=self.source.paths.top, flags={}, environ=os.environ)
            rows = [(key, neutral(shown(key, value)), neutral(at)) for key, value, at in rows_of(loaded)]
            return {"rows": rows, "notes": [neutral(note) for note in loaded.notes]}

        return self._html(request, "settings.html", **await to_thread.run_sync(read))

    async def metrics(self, request: Request) -> Response:
        """Send the figures of the run, as Prometheus reads them; none before the first run."""
        seen = await to_thread.run_sync(self.source.see, _run(request))
        figures = metrics_text(seen.run, alive=seen.alive) if seen else ""
        return Response(figures, headers={"content-type": CONTENT_TYPE})

    async def static(self, request: Request) -> Response:
        """Send a file that pages use."""
        found = static(request.path_params["name"])
        if found is None:
            return Response("not found", status_code=404)
        return Response(found[0], media_type=found[1])

    async def events(self, request: Request) -> Any:
        """Send what changes on a page."""
        if self.hub.watchers >= MOST_WATCHERS:
            return Response("too many browsers watch", status_code=503)
        view = self._watched(request)
        if view is None:
            return Response("not found", status_code=404)
        if isinstance(view, StoryView):
            seen = await to_thread.run_sync(self.source.see, view.run)
            if seen is None or view.story_id not in seen.run.stories:
                return Response("not found", status_code=404)
        return Stream(self.hub, view)

    def _watched(self, request: Request) -> View | None:
        run = _run(request)
        story = StoryId(request.query_params.get("story", ""))
        makers: dict[str, Callable[[], View]] = {
            "board": lambda: BoardView(run=run),
            "story": lambda: StoryView(run=run, story_id=story, session=_number(request, "session")),
            "landing": lambda: LandingView(run=run),
            "timeline": lambda: TimelineView(source=self.source, run=run),
        }
        make = makers.get(request.query_params.get("page", ""))
        return make() if make else None

    async def _page(
        self,
        request: Request,
        template: str,
        view: View,
        *,
        more: Callable[[Seen], dict[str, Any]] | None = None,
        **values: Any,
    ) -> Response:
        """Read the run, draw the fragments of a view, and place them in a template."""
        frame = Frame(form=self.frame.form, run=view.run)

        def read() -> dict[str, Any] | None:
            seen = self.source.see(view.run)
            if seen is None:
                return None
            extra = more(seen) if more else {}
            if "lists" in values:
                extra["lists"] = values["lists"](seen)
            return {"seen": seen, "html": drawn(view, seen, frame), **extra}

        found = await to_thread.run_sync(read)
        if found is None:
            return self._html(request, "nothing.html")
        return self._html(request, template, **{**values, **found, "frame": frame})

    def _html(self, request: Request, template: str, **values: Any) -> Response:
        said = self.notices.take(request.query_params.get("said", ""))
        given = {"frame": Frame(form=self.frame.form, run=_run(request)), "said": said, **values}
        name = self.source.paths.top.name
        return HTMLResponse(render(template, path=request.url.path, repository=neutral(name), **given))

    def _log(self, seen: Seen, view: StoryView, find: str) -> dict[str, Any]:
        """Return the end of a session's log, or the lines that have a word."""
        place = self.source.log_of(seen, view.story_id, view.session)
        if place is None:
            return {"log": [], "log_from": 0, "hits": None, "session": view.session}
        if find:
            return {"log": [], "log_from": 0, "hits": found_in(*place, find), "session": view.session}
        tail = LogTail(*place)
        tail.advance()
        lines = list(tail.lines)
        return {"log": lines, "log_from": tail.total - len(lines), "hits": None, "session": view.session}

    def _work(self, seen: Seen, story: StorySnapshot) -> dict[str, Any]:
        """Return what a story has made so far, and what it was asked for."""
        base, tip = story.workspace.base, story.workspace.commit or story.workspace.branch
        nothing: dict[str, Any] = {"diff": Markup(), "commits": [], "changed": ()}
        entry = _entry(self.source, seen, story.id)
        asked = {"prompt": str(entry.get("prompt") or "")[:MOST_PROMPT], "owns": entry.get("owns") or ()}
        if not base or not tip:
            return {**nothing, **asked}
        repository = repository_of(Repository.open(self.source.directory), seen.run, story.id)
        changed = changes(repository, base, tip)
        found = diff(repository, base, tip, changed, most_lines=DIFF_LINES)
        html = Markup(folded_diff(found, DIFF_BYTES, diff_command(story)))  # noqa: S704  escaped there
        return {"diff": html, "commits": _commits(repository, base, tip), "changed": changed, **asked}


def _run(request: Request) -> str:
    return request.query_params.get("run", "")[:100]


def _number(request: Request, name: str) -> int:
    given = request.query_params.get(name, "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 6 else 0  # noqa: PLR2004


def _require(seen: Seen, story_id: StoryId) -> StorySnapshot:
    story = seen.run.stories.get(story_id)
    if story is None:
        hint = did_you_mean(story_id, seen.run.stories)
        raise NotFoundError(f"run {seen.run.run_id} has no story '{text(story_id, 100)}'", hint=hint)
    return story


def _entry(source: Source, seen: Seen, story_id: StoryId) -> dict[str, Any]:
    """Return a story as the run has planned it, or as it was added later."""
    found: dict[str, Any] = {}
    for event in source.events(seen.run.run_id):
        body = event.body
        for entry in (*getattr(body, "stories", ()), getattr(body, "story", None)):
            if isinstance(entry, dict) and entry.get("id") == story_id:
                found = entry
    return found


def _commits(repository: Repository, base: str, tip: str) -> list[tuple[str, str]]:
    args = ("log", "-z", f"--max-count={MOST_COMMITS}", "--format=%h%x09%s", f"{base}..{tip}", "--")
    output = repository.run(*args, check=False)
    rows = output.fields() if output.returncode == 0 else ()
    return [(short, neutral(subject)) for short, _, subject in (row.partition("\t") for row in rows)]
