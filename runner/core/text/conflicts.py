"""What is said of conflicts that are foreseen."""

from collections.abc import Sequence

from runner.core.forecast.clashes import Clash, Forecast
from runner.core.model import RunSnapshot, StoryId
from runner.core.text.screen import neutral

_FILES = 3
_CLASHES = 3


def files_text(clash: Clash, most: int = _FILES) -> str:
    """Return a few of the files, and how many others there are; without files, the reason."""
    if not clash.files:
        return neutral(clash.reason)
    shown = ", ".join(neutral(file) for file in clash.files[:most])
    others = len(clash.files) - most
    return f"{shown} and {others} more" if others > 0 else shown


def sides(clash: Clash, onto: str) -> str:
    """Return the two that conflict."""
    return " and ".join(clash.stories if len(clash.stories) > 1 else (*clash.stories, onto or "the target"))


def clash_text(clash: Clash, onto: str) -> str:
    """Return one conflict in one line."""
    return f"{sides(clash, onto)}: {files_text(clash)}"


def open_clashes(run: RunSnapshot) -> tuple[Clash, ...]:
    """Return the conflicts of a run that still matter: a story that has landed conflicts with nothing."""
    if run.forecast is None:
        return ()
    return tuple(
        clash for clash in run.forecast.clashes if not any(_is_in(run, name) for name in clash.stories)
    )


def _is_in(run: RunSnapshot, name: str) -> bool:
    story = run.stories.get(StoryId(name))
    return story is not None and bool(story.workspace.merged or story.workspace.landed)


def in_short(clashes: Sequence[Clash], forecast: Forecast) -> str:
    """Return the conflicts in one line; empty without any."""
    if not clashes:
        return ""
    shown = "; ".join(clash_text(clash, forecast.onto) for clash in clashes[:_CLASHES])
    others = len(clashes) + forecast.more - len(clashes[:_CLASHES])
    return f"will conflict: {shown}" + (f"; {others} more pairs" if others else "")


def conflict_line(run: RunSnapshot) -> str:
    """Return the foreseen conflicts of a run in one line; empty without any."""
    return in_short(open_clashes(run), run.forecast) if run.forecast is not None else ""
