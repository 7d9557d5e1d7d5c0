"""What a person can do on the page: each is a request to the active run, or starts this program once more.

Every action answers with a redirect to the page that it came from, and a message that is shown there once.
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import partial
from urllib.parse import parse_qsl, quote

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from trio import to_thread

from isolation.errors import IsolationError
from isolation.git.repository import Repository
from runner.core.choose import must_confirm
from runner.core.errors import NotFoundError, RunnerError, UsageError
from runner.core.events.story_json import to_json
from runner.core.model import Story, StoryId
from runner.core.text.screen import neutral
from runner.plan.settings.load import load_settings
from runner.plan.stories.entry import stories_of
from runner.plan.stories.files import Entry
from runner.plan.trust.agreed import not_agreed_yet, refusal
from runner.run.control import requests as rq
from runner.run.control.additions import plan_new_story, running_stories
from runner.run.control.answers import Delivery
from runner.run.control.launch import Launched, launch
from runner.run.control.steering import Steering
from runner.serve.web.access.guard import MOST_BODY
from runner.serve.web.notices import Notice, Notices
from runner.serve.web.source import Seen, Source
from runner.story.flow.decisions import answer_event, require_open

LAUNCH_SECONDS = 3.0
"""How long to watch a program that was started: what it refuses, it refuses at once."""

Form = Mapping[str, str]


class Actions(Struct, frozen=True, kw_only=True):
    """Answers POST requests."""

    source: Source
    notices: Notices
    is_own_form: Callable[[str], bool]

    async def act(self, request: Request) -> Response:
        """Do what a form asks for."""
        form = await _form(request)
        doing = self._known().get(request.path_params["action"])
        if form is None or not self.is_own_form(form.get("key", "")):
            return Response("the form is not one of this page", status_code=403)
        if doing is None:
            return Response("not found", status_code=404)
        try:
            notice = await to_thread.run_sync(partial(doing, form))
        except (RunnerError, IsolationError) as error:
            notice = Notice(text=neutral(error.message), hint=neutral(getattr(error, "hint", "")), bad=True)
        said = self.notices.keep(notice)
        back = _back(form.get("back", ""))
        return RedirectResponse(f"{back}{'&' if '?' in back else '?'}said={quote(said)}", status_code=303)

    def _known(self) -> dict[str, Callable[[Form], Notice]]:
        return {
            "answer": self._answer,
            "stop": self._stop,
            "pause": self._pause,
            "unpause": self._unpause,
            "retry": self._retry,
            "add": self._add,
            "continue": self._continue,
            "land": self._land,
        }

    def _answer(self, form: Form) -> Notice:
        seen, story_id = self._seen(form), StoryId(form.get("story", ""))
        answer = answer_event(
            seen.run, story_id, form.get("letter", ""), decision_id=form.get("decision", "")
        )
        question = require_open(seen.run, story_id).question
        option = question.option(answer.letter)
        if must_confirm(question, answer.letter) and not form.get("sure"):
            raise UsageError(
                f"story {story_id}: this option destroys something: {answer.letter}) {option.text}",
                hint="check `I am sure` and answer again.",
            )
        said: list[str] = []
        delivered = Delivery(
            steering=self._steering, run_id=seen.run.run_id, answer=answer, say=said.append
        ).deliver()
        hint = "" if delivered.live else "The run is not active; `Continue` acts on the answer."
        return Notice(text=f"{story_id}: decided {answer.letter}) {option.text}", hint=hint)

    def _stop(self, form: Form) -> Notice:
        story = form.get("story", "")
        now = form.get("when") == "now"
        if story:
            _require(self._seen(form), story)
        self._steering.send(rq.Stop(story_id=StoryId(story) if story else None, now=now))
        when = "now" if now else "after its current session" if story else "after the current sessions"
        return Notice(text=f"Stopping {story or 'the run'} {when}")

    def _pause(self, form: Form) -> Notice:  # noqa: ARG002  all actions take a form
        self._steering.send(rq.Pause())
        return Notice(text="Paused: no new story starts until you continue")

    def _unpause(self, form: Form) -> Notice:  # noqa: ARG002  all actions take a form
        self._steering.send(rq.Unpause())
        return Notice(text="The run starts stories again")

    def _retry(self, form: Form) -> Notice:
        story = _require(self._seen(form), form.get("story", ""))
        fresh = bool(form.get("fresh"))
        self._steering.send(rq.Retry(story_id=story, note=form.get("note", "").strip(), fresh=fresh))
        return Notice(text=f"{story} is tried again{' from the base' if fresh else ''}")

    def _add(self, form: Form) -> Notice:
        story = _new_story(form)
        run_id = self._steering.require_active()
        repository = Repository.open(self.source.directory)
        loaded = load_settings(top=repository.top, flags={}, environ=os.environ)
        running = running_stories(repository, run_id)
        additions = plan_new_story(repository, loaded, story, running)
        asked = not_agreed_yet(repository, additions.demands, trust=loaded.settings.trust, environ=os.environ)
        if asked:
            raise refusal(asked, hint="`autopilot-multi trust` shows everything and asks, in a terminal.")
        self._steering.send(rq.Add(stories=tuple(map(to_json, additions.stories))), run_id=run_id)
        return Notice(text=f"Added {story.id} to the run")

    def _continue(self, form: Form) -> Notice:
        seen = self._seen(form)
        retry = ["--retry-failed"] if form.get("failed") else []
        started = launch(self.source.directory, ["resume", seen.run.run_id, *retry])
        return self._started(started, f"Continuing run {seen.run.run_id}")

    def _land(self, form: Form) -> Notice:
        unverified = ["--yes"] if form.get("unverified") else []
        return self._started(launch(self.source.directory, ["land", *unverified]), "Landing started")

    def _started(self, started: Launched, text: str) -> Notice:
        """Wait a moment for what the program refuses at once."""
        deadline = time.monotonic() + LAUNCH_SECONDS
        while started.alive and time.monotonic() < deadline and not self._is_busy(started.pid):
            time.sleep(0.05)
        lines = [neutral(line) for line in started.last_lines().splitlines()]
        errors = [line for line in lines if line.startswith("error: ")]
        if started.alive or not errors:
            return Notice(text=text)
        hints = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")]
        return Notice(text=errors[-1].removeprefix("error: "), hint=" ".join(hints[-1:]), bad=True)

    def _is_busy(self, pid: int) -> bool:
        """Whether a program that was started has the repository by now: it will refuse nothing more."""
        from isolation.files.lease import holder_is_alive, read_holder

        holder = read_holder(self.source.paths.common_dir)
        taken = holder is not None and getattr(holder, "pid", 0) == pid
        return taken and holder_is_alive(self.source.paths.common_dir)

    def _seen(self, form: Form) -> Seen:
        seen = self.source.see(form.get("run", "")[:100])
        if seen is None:
            raise NotFoundError("this repository has no runs yet", hint="start one with `autopilot-multi`.")
        return seen

    @property
    def _steering(self) -> Steering:
        return Steering(self.source.directory)


def _new_story(form: Form) -> Story:
    """Return the story of the form. It brings no commands of its own, whatever the form says."""
    name, prompt = form.get("id", "").strip(), form.get("prompt", "").strip()
    if not prompt:
        raise UsageError(f"story {neutral(name)} has no prompt", hint="say what is to be done.")
    written = {
        "id": name,
        "title": neutral(form.get("title", "")).strip() or prompt.splitlines()[0][:80],
        "prompt": prompt,
        "owns": [line.strip() for line in form.get("owns", "").splitlines() if line.strip()],
        "depends_on": form.get("depends_on", "").replace(",", " ").split(),
    }
    entry = Entry(file="the form", source="", data=written, body=None, stem=None, node=None, first_line=1)
    (story,) = stories_of([entry])
    return story


def _require(seen: Seen, name: str) -> StoryId:
    if name not in seen.run.stories:
        raise NotFoundError(f"run {seen.run.run_id} has no story '{neutral(name)[:100]}'")
    return StoryId(name)


def _back(path: str) -> str:
    """Return the page of ours to go back to; any other address becomes the board."""
    own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return quote(path, safe="/?=&-._~%") if own else "/"


async def _form(request: Request) -> dict[str, str] | None:
    """Read a form as browsers send it without scripts; None if it is not one, or too long."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        return None
    said = request.headers.get("content-length", "0")
    if not said.isdecimal() or int(said) > MOST_BODY:
        return None
    body = b""
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > MOST_BODY:
                return None
    try:
        pairs = parse_qsl(os.fsdecode(body), keep_blank_values=True, max_num_fields=50)
    except ValueError:
        return None
    return {name: value.encode(errors="replace").decode() for name, value in pairs}
