"""One session in its story's workspace; in a shared tree, its writes outside the claim are checked."""

from collections.abc import Awaitable, Sequence

from msgspec.structs import replace
from trio import to_thread

from isolation.files import threads
from isolation.git.commits import named
from isolation.guard.guard import UNSEEN
from isolation.model import SessionSpec
from isolation.shared_tree.findings import Finding, Refusals
from runner.core.events.events import Noted
from runner.core.model import Outcome
from runner.plan.shared_tree import OpenSharedTree
from runner.story.context.context import RunContext
from runner.story.session.log import SessionLog
from runner.story.session.session import SessionOrder, SessionVerdict, run_session

_ENDED_BY_US = frozenset({Outcome.STOPPED, Outcome.STALLED})


def run_watched(order: SessionOrder, run: RunContext) -> Awaitable[SessionVerdict]:
    """Run one session to its end; changes outside its story's claim, made or tried, make it a failed one."""
    return run_session(order, run) if run.shared_tree is None else _run_shared(order, run, run.shared_tree)


async def _run_shared(order: SessionOrder, run: RunContext, shared_tree: OpenSharedTree) -> SessionVerdict:
    async with shared_tree.watch.session(order.story_id) as watched:
        spec = await threads.run(_enclosed, order, shared_tree)
        confinement, places = spec.confinement, shared_tree.activity_paths(spec.cwd, order.story_id)
        verdict = await run_session(replace(order, spec=spec, sealed=True, places=places), run)
    refused = await _refused(order, verdict, shared_tree)
    witness_lost = confinement is not None and confinement.witnessed and verdict.attempts is None
    notes = (*(finding.words for finding in watched.findings), *watched.notes, refused.words, refused.note)
    notes += (UNSEEN,) if witness_lost and verdict.exit_code is not None else ()
    noted = [Noted(story_id=order.story_id, message=words) for words in notes if words]
    if noted:
        await run.log.record(*noted)
    return _judged(verdict, watched.findings, refused)


def _enclosed(order: SessionOrder, shared_tree: OpenSharedTree) -> SessionSpec:
    """Return the session within its claim and under its seal. Blocks."""
    env = {**order.spec.env, **shared_tree.refusal}
    spec = replace(order.spec, env=env, confinement=shared_tree.confine(order.story_id))
    return order.seal.around(spec) if order.seal else spec


async def _refused(order: SessionOrder, verdict: SessionVerdict, shared_tree: OpenSharedTree) -> Refusals:
    """Judge the writes that were refused, and list them in the log, since it may not."""
    if verdict.attempts is None:
        return Refusals()
    refused = await to_thread.run_sync(shared_tree.judge, order.story_id, verdict.attempts)
    with SessionLog(order.log, cap=order.log_cap) as log:
        for path in (*refused.foreign, *refused.forgiven):
            log.write(f"autopilot-multi: refused outside its claim: {named([path])}\n".encode())
    return refused


def _judged(verdict: SessionVerdict, findings: Sequence[Finding], refused: Refusals) -> SessionVerdict:
    """Fail a session that changed, or tried to change, what is not its own."""
    if verdict.outcome in _ENDED_BY_US or not (findings or refused.foreign):
        return verdict
    words = "; ".join((*(finding.words for finding in findings), *filter(None, (refused.words,))))
    lines = []
    if findings:
        lines.append("These paths were changed and lie outside your claim; the changes were undone:")
        lines += [path for finding in findings for path in finding.quarantine.paths]
    if refused.foreign:
        lines.append("You tried to change these paths, which lie outside your claim; it was refused:")
        lines += refused.foreign
    if verdict.outcome is Outcome.FAILED:  # it also failed by itself
        lines += ["", verdict.output]
    return replace(verdict, outcome=Outcome.FAILED, detail=words, output="\n".join(lines))
