"""Requests to a service's REST interface: asked again where that is safe, page by page, errors in words.

How one request is sent is the service's own (`Send`); this says when it is sent again. A request that writes
is repeated only if the service says that nothing was done (a rate limit), or if the caller says that doing it
twice is doing it once; otherwise an outage is an OutageError, after which the caller must look.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from msgspec import Struct

from runner.core.text.names import one_line
from runner.core.text.redaction import Redactor
from runner.core.text.screen import shorten
from runner.forge import patience
from runner.forge.answers import Answer
from runner.forge.errors import OutageError, RefusedError, SignInError

MOST_PAGES = 1000
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_UNAUTHORIZED = 401
_REASON = 300


class NoAnswerError(Exception):
    """Nothing came back that is an answer; holds why, in words."""


class Send(Protocol):
    """Sends one request; raises NoAnswerError if no whole answer came back."""

    def __call__(self, method: str, path: str, body: bytes, *, asked: str) -> Answer:
        """Send it, and return the answer whatever its status is."""


def quiet(_: str) -> None:
    """Say nothing."""


class Rest(Struct, frozen=True, kw_only=True):
    """A service, how to send it something, and how to wait.

    `pause` waits some seconds; inside of trio it must be one that can be canceled. `say` tells the user why
    nothing happens for a while. `now` is the time of the clock on the wall.
    """

    service: str
    sign_in: str
    send: Send
    pause: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time
    say: Callable[[str], None] = quiet
    redactor: Redactor = Redactor()

    def request(
        self, method: str, path: str, body: Any = None, *, asked: str, repeatable: bool | None = None
    ) -> Answer:
        """Send one request, and again where that helps; `asked` says what for: "read the issues of o/r".

        Raises RefusedError, SignInError or OutageError; what is returned is a success.
        """
        again = method in _REPEATABLE if repeatable is None else repeatable
        data = b"" if body is None else json.dumps(body).encode()
        problem = ""
        for attempt in range(1, patience.ATTEMPTS + 1):
            wait, limited = patience.pause_before(attempt), False
            try:
                answer = self.send(method, path, data, asked=asked)
            except NoAnswerError as error:
                problem = f"no answer: {error}"
            else:
                if answer.ok:
                    return answer
                problem, limited = self._words(answer), patience.is_limited(answer)
                if limited:
                    wait = self._limit(answer, wait, asked)
                elif not patience.is_outage(answer):
                    raise self._refused(answer, asked)
            if attempt == patience.ATTEMPTS or not (again or limited):
                break
            self.say(f"{self.service}: {problem}; trying again in {wait:.0f} s")
            self.pause(wait)
        raise OutageError(
            f"cannot {asked}: {self.service}: {problem}",
            hint=f"try again when {self.service} answers; nothing is left half done here.",
        )

    def json(
        self, method: str, path: str, body: Any = None, *, asked: str, repeatable: bool | None = None
    ) -> Any:
        """Send one request and return the JSON value of its answer."""
        return self.value(self.request(method, path, body, asked=asked, repeatable=repeatable), asked=asked)

    def value(self, answer: Answer, *, asked: str) -> Any:
        """Return the JSON value of an answer."""
        try:
            return answer.json()
        except (ValueError, RecursionError) as error:
            raise RefusedError(
                f"cannot {asked}: {self.service} answered with something that is not JSON",
                status=answer.status,
                hint="check the address of the service, and any proxy in between.",
            ) from error

    def pages(self, path: str, *, asked: str, most: int | None = None) -> Iterator[Any]:
        """Yield the items of a list, page by page, at most `most` of them."""
        count, url, before = 0, path, path.partition("?")[0]
        for _ in range(MOST_PAGES):
            answer = self.request("GET", url, asked=asked)
            items = self.value(answer, asked=asked)
            if not isinstance(items, list):
                raise RefusedError(
                    f"cannot {asked}: {self.service} did not answer with a list", status=answer.status
                )
            for item in items:
                if most is not None and count >= most:
                    return
                count += 1
                yield item
            if not answer.next_url:
                return
            # Only the query of what the service names: nothing that it answers leads to another place.
            url = f"{before}?{answer.next_url.partition('?')[2]}"
        raise RefusedError(f"cannot {asked}: {self.service} has no last page", status=answer.status)

    def _limit(self, answer: Answer, wait: float, asked: str) -> float:
        ends = patience.limit_ends(answer, self.now())
        wait = wait if ends is None else ends
        if wait > patience.LONGEST:
            raise OutageError(
                f"cannot {asked}: {self.service} allows no more requests for {wait / 60:.0f} minutes",
                hint="try again after that.",
            )
        return wait

    def _words(self, answer: Answer) -> str:
        reason = shorten(one_line(self.redactor.text(answer.reason)), _REASON)
        return f"HTTP {answer.status}{f' ({reason})' if reason else ''}"

    def _refused(self, answer: Answer, asked: str) -> RefusedError | SignInError:
        message = f"cannot {asked}: {self.service}: {self._words(answer)}"
        if answer.status == _UNAUTHORIZED:
            return SignInError(message, hint=f"sign in again: {self.sign_in}.")
        return RefusedError(
            message,
            status=answer.status,
            words=one_line(self.redactor.text(answer.reason)),
            hint="check the name, and what your sign-in may do there.",
        )
