"""The prompt that a story's first session would get, without a run."""

from isolation.model import IsolationMode
from isolation.paths import EXCHANGE, worktree_path
from runner.core.errors import NotFoundError
from runner.core.flow import QUICK, Edition
from runner.core.model import IMPLEMENT, SessionKind, Step, StoryId
from runner.core.text.names import did_you_mean
from runner.plan.guard import write_guard_of
from runner.plan.plan import Plan
from runner.plan.settings.prompt_template import load_template
from runner.story.session.prompt import PromptFacts, render


def preview(plan: Plan, story_id: StoryId) -> str:
    """Return the prompt that the first session of a story would get now."""
    story = next((each for each in plan.stories if each.id == story_id), None)
    if story is None:
        known = [each.id for each in plan.stories]
        raise NotFoundError(
            f"there is no story {story_id}",
            hint=did_you_mean(story_id, known) or f"there are: {', '.join(known)}.",
        )
    first, words, judged = IMPLEMENT, "", True
    if story.flow != QUICK.name:
        from runner.flows.catalog import load_flow

        edition = Edition(story.dialect or plan.settings.dialect)
        step = next(
            one
            for one in load_flow(story.flow, edition, plan.repository.top).steps
            if one.kind is SessionKind.WORK
        )
        first, words = Step(number=step.number, name=step.name), step.prompt.strip()
        judged = step.name.startswith("Implement")
    own = plan.settings.prompt_template
    shared = plan.settings.bg_isolation == IsolationMode.NONE
    path = plan.repository.top if shared else worktree_path(plan.worktree_root, story.id)
    exchange = path / EXCHANGE / story.id if shared else path / EXCHANGE
    write_guard = write_guard_of(plan.repository.paths, plan.settings, plan.worktree_root)
    facts = PromptFacts(
        story=story,
        step=first,
        attempt=1,
        attempts=story.max_attempts or plan.settings.max_attempts,
        verify=(story.verify or plan.settings.verify) if judged else (),
        result_file=write_guard.inside(exchange / "01-result.json", path),
        step_prompt=words,
        shared=shared,
    )
    return render(facts, load_template(plan.repository.top / own if own else None))
