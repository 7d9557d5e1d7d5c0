"""What follows from the end of a session: from what happened to the events that are recorded with it. Pure.

The end of a session and its consequences go into one transaction, so that a resume never finds an end
without its consequence.
"""

from functools import partial

from msgspec import Struct, structs

from isolation.git.commits import named
from runner.core.base.commands import cannot_start, is_of_the_machine, missing_program
from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.limits.agent_output import Fault
from runner.core.limits.context_zone import Zone
from runner.core.limits.kill_switches import AfterFacts, Switch, after_session
from runner.core.limits.outage import FAILURES, OutageFacts, Pause, Refusal, after_outage
from runner.core.limits.spiral import failure_digest, same_failure, undone_and_redone
from runner.core.limits.waves import unrecovered_failures
from runner.core.model import SPIRAL_LIMIT, Outcome, SessionKind, Story, StorySnapshot
from runner.core.text.telling import LACKED
from runner.story.session.session import SessionVerdict

_BY_HAND = (
    "make sure that `{}` works here by hand (its sign-in, its key, the model), then "
    "`autopilot-multi resume --retry-failed`."
)
_LATER = "once the service of `{}` works again: `autopilot-multi resume --retry-failed`."


class EndFacts(Struct, frozen=True, kw_only=True):
    """What is known when a session ends; `cohort_spirals` counts those of all stories before it.

    `aborted` says what stopped the story; it is empty if nothing did.
    `next_agent` is another agent of the story that could work now; empty if there is none.
    `chance` is a random number from 0 to 1, so that stories do not return to a service all at the same time.
    """

    story: Story
    now: StorySnapshot
    agent: str
    cohort_spirals: int
    aborted: str
    at: float
    chance: float
    next_agent: str = ""
    spiral_limit: int = SPIRAL_LIMIT


def consequences(ended: SessionVerdict, facts: EndFacts) -> tuple[ev.Body, ...]:
    """Return what follows from the end of a work session; nothing means that the story just continues."""
    outage = _outage(ended, facts)
    if outage:
        return outage  # the service failed, not the work
    judged = _judged(ended, facts)
    ends = any(isinstance(body, ev.LoopEnded) for body in judged)
    if judged and not ends:
        return judged  # the session is retried, so its work is not committed
    if ended.outcome in {Outcome.OK, Outcome.PARTIAL, Outcome.ASKS}:
        return (ev.CheckpointPlanned(story_id=facts.story.id), *judged)
    if ended.outcome is Outcome.FAILED and not ends:
        return _cannot_start(ended, facts) or failed_attempt(
            f"session: {ended.detail}", ended.output, facts, dead=_is_dead(ended)
        )
    return judged


def verify_consequences(
    ended: SessionVerdict, command: str, facts: EndFacts, *, without: tuple[str, ...] = ()
) -> tuple[ev.Body, ...]:
    """Return what follows from the end of a verify command: a failed one is a failed attempt.

    One whose program is missing on this machine ends the story: no attempt can change that. `without` are the
    paths that the command did not find, since they are in no commit.
    """
    if ended.outcome is not Outcome.FAILED:
        return ()
    program = missing_program(ended.exit_code, ended.output)
    if is_of_the_machine(program) and not without:
        why, hint = cannot_start(f"`{command}`", program, ended.exit_code)
        return (ag.AgentRefused(story_id=facts.story.id, agent="verify", reason=why, hint=hint),)
    how = (
        f"verify command `{command}` {ended.detail}"
        if ended.overdue
        else f"verify `{command}`: {ended.detail}"
    )
    output = f"$ {command}\n{ended.output}"
    if without:
        how = f"{how}, without {named(without)}, which no commit holds"
        output = f"{output}\n{LACKED}\n" + "\n".join(without)
    return failed_attempt(how, output, facts)


def _cannot_start(ended: SessionVerdict, facts: EndFacts) -> tuple[ev.Body, ...]:
    """Return the end of a story whose own command needs a program that this machine does not have."""
    command = facts.story.command
    if command is None:
        return ()
    program = missing_program(ended.exit_code, ended.output)
    if ended.exit_code is None and ended.detail.startswith(f"cannot start {command[0]} in "):
        program = command[0]
    if not is_of_the_machine(program):
        return ()
    why, hint = cannot_start("its command", program, ended.exit_code)
    return (ag.AgentRefused(story_id=facts.story.id, agent=facts.agent, reason=why, hint=hint),)


def failed_attempt(reason: str, output: str, facts: EndFacts, *, dead: bool = False) -> tuple[ev.Body, ...]:
    """Return a failed attempt; the same failure again and again is also a spiral.

    The next attempt begins a new conversation if this one is dead, or has led to two failures in a row.

    A plain command repeats itself by nature, and the last attempt is not retried in any case.
    """
    story, now = facts.story, facts.now
    failure = ev.AttemptFailed(
        story_id=story.id,
        attempt=now.progress.attempt,
        reason=reason,
        output=output,
        fresh=dead or _failed_before(now),
    )
    digests = (*now.step_history.failures, failure_digest(reason, output))
    if now.progress.attempt < now.max_attempts and _failed_often(facts):
        words = f"{FAILURES} attempts of {facts.agent} have failed"
        return failure, replaced(facts, words, until=facts.at)
    if story.command or now.progress.attempt >= now.max_attempts or not same_failure(digests):
        return (failure,)
    return failure, *_spiral(f"the same failure {len(digests)} times: {reason}", facts)


def undone_change(trees: tuple[str, ...], facts: EndFacts) -> tuple[ev.Body, ...]:
    """Return a spiral if a change was undone and made again, as the trees of the step's commits show."""
    return _spiral("the same change was undone and made again", facts) if undone_and_redone(trees) else ()


def said_to_spiral(ended: SessionVerdict) -> bool:
    """Whether the session itself reported a spiral, which is not a failed attempt."""
    return ended.result.summary.get("spiral", 0) > 0


def unresolved(markers: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the flaw of a commit with conflict markers, and the message for the next session."""
    if not markers:
        return None
    words = "You committed conflict markers in these files; resolve the conflicts:\n" + "\n".join(markers)
    meant = "If a file is meant to hold them, set its attribute conflict-marker-size in .gitattributes."
    return f"conflict markers were committed: {named(markers)}", f"{words}\n{meant}"


def complaints(ended: SessionVerdict) -> tuple[str, ...]:
    """Return what the user should read about a work session, whatever became of it."""
    return tuple(filter(None, (ended.result.complaint, _denied_tools(ended), _full_context(ended))))


def _denied_tools(ended: SessionVerdict) -> str:
    """Return which tools the agent was not allowed to use: it may have continued without them."""
    denied = ended.said.denied if ended.said else ()
    if not denied:
        return ""
    return (
        f"its agent was denied {', '.join(denied)}; to allow a command, add it to `verify`, or to the "
        "agent's own rules with `args` under [agents]; `permissions` there says what it may do"
    )


def _full_context(ended: SessionVerdict) -> str:
    """Return what to say about a session that ended since its context was full; empty for others."""
    if ended.outcome is not Outcome.PARTIAL or ended.zone is not Zone.DANGER:
        return ""
    words = ended.detail or "the session ended by itself, since its context was full"
    return f"{words}; a fresh session continues this step from its saved sub-step"


def _judged(ended: SessionVerdict, facts: EndFacts) -> tuple[ev.Body, ...]:
    """Judge a work session that ran to its end by what it reports about itself."""
    if ended.outcome in {Outcome.STOPPED, Outcome.STALLED}:
        return ()
    effect = ended.result.effectiveness
    return _recorded(
        AfterFacts(
            spiral="the session reported a spiral" if said_to_spiral(ended) else "",
            failed_agents=unrecovered_failures(ended.result.summary, ended.result.waves),
            planned=effect.get("planned_issues"),
            carryover=effect.get("carryover"),
            aborted="" if ended.outcome is Outcome.OK else facts.aborted,
        ),
        facts,
    )


def _spiral(words: str, facts: EndFacts) -> tuple[ev.Body, ...]:
    return _recorded(AfterFacts(spiral=words), facts)


def _recorded(after_facts: AfterFacts, facts: EndFacts) -> tuple[ev.Body, ...]:
    known = structs.replace(
        after_facts,
        spirals_before=facts.cohort_spirals,
        own_spirals=facts.now.spirals,
        spiral_limit=facts.spiral_limit,
    )
    after, story_id = after_session(known), facts.story.id
    bodies: list[ev.Body] = []
    if after_facts.spiral:
        bodies.append(ev.SpiralSeen(story_id=story_id, reason=after_facts.spiral, retries=after.retries))
    found = after.switch
    if found is not None:
        bodies.append(ev.LoopEnded(story_id=story_id, name=found.name, detail=found.detail, hint=found.hint))
        if after.ends_cohort:
            detail = f"{story_id}: {found.detail}"
            bodies.append(ev.AdmissionEnded(name=str(Switch.SPIRAL), detail=detail, hint=found.hint))
    return tuple(bodies)


def _outage(ended: SessionVerdict, facts: EndFacts) -> tuple[ev.Body, ...]:
    """Return what follows when the agent's service failed the session; nothing when it did not."""
    said, now = ended.said, facts.now
    if ended.outcome is not Outcome.FAILED or said is None or said.fault is None:
        return ()
    found = after_outage(
        OutageFacts(
            fault=said.fault,
            at=facts.at,
            outages=now.outage.count,
            since=now.outage.since,
            until=said.until,
            chance=facts.chance,
            resumed=_continued_conversation(now),
        )
    )
    paused = partial(ag.AgentPaused, story_id=facts.story.id, agent=facts.agent, reason=said.message)
    match found:
        case Pause(until=until, everyone=everyone, fresh=fresh):
            return (paused(until=until, everyone=everyone, fresh=fresh),)
        case Refusal(because=because):
            words = f"{said.message} ({because})" if because else said.message
            if facts.next_agent:
                return (replaced(facts, words, unserved=True),)
            hint = (_LATER if because else _BY_HAND).format(facts.agent)
            return (ag.AgentRefused(story_id=facts.story.id, agent=facts.agent, reason=words, hint=hint),)
        case None:
            return ()


def replaced(facts: EndFacts, reason: str, *, until: float = 0.0, unserved: bool = False) -> ag.AgentReplaced:
    """Return that the next agent of the story continues."""
    return ag.AgentReplaced(
        story_id=facts.story.id,
        agent=facts.agent,
        by=facts.next_agent,
        reason=reason,
        until=until,
        unserved=unserved,
    )


def _failed_often(facts: EndFacts) -> bool:
    """Whether another agent should try, since the one at work has failed several attempts at this step."""
    tried = {
        one.attempt
        for one in facts.now.sessions
        if one.kind is SessionKind.WORK and one.agent == facts.agent and one.step == facts.now.place
    }
    return bool(facts.next_agent) and len(tried) >= FAILURES


def _is_dead(ended: SessionVerdict) -> bool:
    """Whether no request can succeed any more in the conversation of a session."""
    return ended.said is not None and ended.said.fault is Fault.LOST


def _failed_before(now: StorySnapshot) -> bool:
    """Whether an earlier attempt failed in the conversation of the newest work session, too."""
    worked = [session for session in now.sessions if session.kind is SessionKind.WORK]
    if not worked or not worked[-1].conversation:
        return False
    last = worked[-1]
    same = [one for one in worked if one.conversation == last.conversation]
    return any(one.attempt < last.attempt for one in same)


def _continued_conversation(now: StorySnapshot) -> bool:
    """Whether the newest session continued the conversation of an earlier one."""
    *earlier, last = now.sessions
    return any(session.conversation == last.conversation for session in earlier if last.conversation)
