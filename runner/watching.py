"""One session in whatever place its story has; in a shared tree with a look at what it changed."""

from dataclasses import replace

from isolation.repository import offload
from runner.core.events import Noted
from runner.core.model import Outcome
from runner.session import SessionOrder, SessionVerdict, run_session
from runner.sharing import Sharing
from runner.tools import Tools

_ENDED_BY_US = frozenset({Outcome.STOPPED, Outcome.STALLED})


async def run_watched(order: SessionOrder, tools: Tools) -> SessionVerdict:
    """Run one session to its end; changes outside its story's claim make it a failed one."""
    if tools.sharing is None:
        return await _run(order, tools)
    return await _run_shared(order, tools, tools.sharing)


async def _run(order: SessionOrder, tools: Tools) -> SessionVerdict:
    return await run_session(
        order, keeper=tools.keeper, recorder=tools.recorder, control=tools.control, meter=tools.meter
    )


async def _run_shared(order: SessionOrder, tools: Tools, sharing: Sharing) -> SessionVerdict:
    async with sharing.watch.session(order.story_id) as watched:
        confinement = await offload(sharing.confine, order.story_id)
        spec = replace(order.spec, env={**order.spec.env, **sharing.refusal}, confinement=confinement)
        places = sharing.places(spec.cwd, order.story_id)
        verdict = await _run(replace(order, spec=spec, places=places), tools)
    if not watched.findings:
        return verdict
    words = "; ".join(finding.words for finding in watched.findings)
    await tools.recorder.record(Noted(story_id=order.story_id, message=words))
    if verdict.outcome in _ENDED_BY_US:
        return verdict
    paths = [path for finding in watched.findings for path in finding.quarantine.paths]
    told = "These paths were changed and lie outside your claim; the changes were taken back:\n"
    return replace(verdict, outcome=Outcome.FAILED, detail=words, output=told + "\n".join(paths))
