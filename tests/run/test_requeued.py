"""Which stories a resumed run continues."""

from runner.core.model import Decision, RunId, RunSnapshot, Status, StoryId, StorySnapshot
from runner.run.coordinator import _requeued


def test_a_question_keeps_a_parked_story_and_not_a_stopped_one() -> None:
    """A parked story would only ask again; one that was stopped after its question is not parked yet."""
    asked = Decision(id="d", question={}, asked_at=1.0)
    statuses = {"parked": Status.PARKED, "stopped": Status.STOPPED, "done": Status.DONE}
    stories = {
        StoryId(name): StorySnapshot(id=StoryId(name), title=name, status=status, decision=asked)
        for name, status in statuses.items()
    }
    run = RunSnapshot(run_id=RunId("r"), started_at=0.0, stories=stories)
    assert _requeued(run, retry_failed=False) == ("stopped",)
