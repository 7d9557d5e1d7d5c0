"""The settings about the work itself: the stories, who does them, what proves them, and what limits them."""

from typing import Annotated

from msgspec import Struct

from runner.core.declaration import Bounds, Setting
from runner.core.model import DEFAULT_ATTEMPTS, SPIRAL_LIMIT
from runner.core.tier_settings import MOST_STORIES

DEFAULT_THRESHOLD = 0.85
"""How certain the next step must be, where neither the user nor past runs say otherwise."""

TOOL_CACHES = (
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".cache",
    ".tox",
    ".nox",
    ".gradle",
    "target",
)
"""Folders that tools fill."""

VERIFY_KEEPS = tuple(f"**/{name}/**" for name in TOOL_CACHES)
"""Caches without which commands give the same answers, only later."""


_COUNT = Bounds(low=0, clamped=False)


_COMMAND = "a shell command"


class ContextSettings(Struct, frozen=True, kw_only=True):
    """From which counts on the context of a session is filling up, and full; 0 leaves a sign out."""

    caution_tools: Annotated[
        int, Setting(help="caution from this many tool calls of a conversation on", bounds=_COUNT)
    ] = 20
    caution_artifacts: Annotated[
        int,
        Setting(
            help="caution when the session has read this many artifacts",
            details="Files under `_docs/` and in the `docs-folder` of the story, without its state file.",
            bounds=_COUNT,
        ),
    ] = 5
    caution_large_files: Annotated[
        int, Setting(help="caution when the session has read this many large files", bounds=_COUNT)
    ] = 3
    large_kb: Annotated[
        float, Setting(help="a file is large if reading it returns this many KB at once", bounds=_COUNT)
    ] = 20.0
    danger_truncated: Annotated[
        int, Setting(help="danger from this many truncated tool results on", bounds=_COUNT)
    ] = 3
    danger_failures: Annotated[
        int,
        Setting(
            help="danger when this many tool calls in a row have failed",
            details="A refused permission does not count.",
            bounds=_COUNT,
        ),
    ] = 6
    danger_tools: Annotated[
        int, Setting(help="danger from this many tool calls of a conversation on", bounds=_COUNT)
    ] = 200
    patience: Annotated[
        int,
        Setting(
            help="how many further tool calls a session in danger has to save a sub-step or to commit",
            bounds=_COUNT,
        ),
    ] = 10


class HookSettings(Struct, frozen=True, kw_only=True):
    """Shell commands around a workspace; the first two abort the story on failure."""

    after_create: Annotated[
        str,
        Setting(
            key="after_create",
            help="once, before the story's first session",
            details="the story fails",
            expects=_COMMAND,
        ),
    ] = ""
    before_run: Annotated[
        str,
        Setting(
            key="before_run", help="before each work session", details="the story fails", expects=_COMMAND
        ),
    ] = ""
    after_run: Annotated[
        str,
        Setting(
            key="after_run", help="after each work session", details="a note in the report", expects=_COMMAND
        ),
    ] = ""
    before_remove: Annotated[
        str,
        Setting(
            key="before_remove",
            help="before the worktree of a finished story is removed",
            details="a note in the report",
            expects=_COMMAND,
        ),
    ] = ""


class WorkSettings(Struct, frozen=True, kw_only=True):
    """The first part of `Settings`, in the order in which the user sees them."""

    stories: Annotated[
        str,
        Setting(
            help="the folder or file that holds the backlog, relative to the top of the repository",
            filled=True,
        ),
    ] = "stories"
    agent: Annotated[
        str,
        Setting(
            asks=True,
            help="the agent for stories that name none, or several in order of preference",
            details="Not used for stories with a `command`. `auto` picks the only agent described under "
            "`[agents]`, or else the first [known agent](../how-to/use-a-known-agent.md) that is "
            "installed, and a note says which. Of several, the next one continues a story when one is at "
            "its limit, does not work, or has failed two attempts; see "
            "[several agents in order](../how-to/agents-in-order.md).",
            flag="--agent NAME",
            expects='an agent, or a list such as ["claude", "codex"]',
            filled=True,
            separator=",",
        ),
    ] = "auto"
    on_limit: Annotated[
        str,
        Setting(
            help="what a story with several agents does while its agent has to wait: take the next, or wait",
            details="`next`: if the wait is longer than a minute, the next of its agents continues. `wait`: "
            "it waits, however long that takes. Neither fails the story.",
            flag="--on-limit WHAT",
            choices=("next", "wait"),
        ),
    ] = "next"
    model: Annotated[
        str,
        Setting(
            help="the model that the agent uses",
            details="Passed to known agents at every start and resume, and replaces `{model}` in an agent's "
            "`argv`.",
            flag="--model NAME",
            example="opus",
        ),
    ] = ""
    escalate: Annotated[
        tuple[str, ...],
        Setting(
            asks=True,
            help="who does the second attempt, the third and so on: agent, agent:model, or :model",
            details="The last one does all further attempts; without it, the first agent does them all. "
            "`:model` is another model of the story's own agent. A story's own `escalate` takes precedence. "
            "See [escalation](../how-to/verify-and-retry.md#escalate-after-a-failure).",
            flag="--escalate WHO",
            expects='a list such as ["codex", "claude:opus"]',
            example="claude:opus",
            separator=",",
        ),
    ] = ()
    prompt_template: Annotated[
        str,
        Setting(
            help="a file with the template of prompts, relative to the top of the repository",
            details="See [prompts](#prompts).",
            example="tools/prompt.md",
            empty="built in",
        ),
    ] = ""
    verify: Annotated[
        tuple[str, ...],
        Setting(
            asks=True,
            help="a command that must pass for stories that name none",
            details="Run in the story's workspace after its work; the story is done only when all commands "
            "pass.",
            flag="--verify CMD",
            expects="a command or a list of commands",
            example="make test",
            separator="\n",
        ),
    ] = ()
    base_check: Annotated[
        str,
        Setting(
            help="whether the verify commands must work on the untouched base before the first session",
            details="Each runs once there. `require`: a command of this setting that fails, or any command "
            "that cannot start, costs no session. `warn` only says so, `off` does not ask. See "
            "[the base is asked first](../how-to/verify-and-retry.md#the-base-is-asked-first).",
            flag="--no-base-check",
            flag_value="off",
            flag_help="do not run the verify commands on the untouched base first",
            choices=("require", "warn", "off"),
        ),
    ] = "require"
    verify_minutes: Annotated[
        float | None,
        Setting(
            help="how many minutes one verify command may take",
            details="After this time the command and all its processes are ended, and the attempt has "
            "failed. A story's own `verify_minutes` takes precedence.",
            flag="--verify-minutes M",
            example="30",
        ),
    ] = None
    ports: Annotated[
        int,
        Setting(
            help="how many free ports each story has for itself while it runs",
            details="In `AUTOPILOT_PORT`, `AUTOPILOT_PORT_2` and so on, with the name of a database of its "
            "own in `AUTOPILOT_DATABASE`. A story's own `ports` takes precedence. See "
            "[ports and databases](../how-to/ports-and-databases.md).",
            flag="--ports N",
            bounds=Bounds(low=0, high=32),
        ),
    ] = 0
    verify_in: Annotated[
        str,
        Setting(
            help="where verify commands run: in the story's worktree, or in a clean checkout of its commit",
            details="In the worktree, what sessions made and no commit holds is out of the way meanwhile. A "
            "clean checkout is prepared like a new worktree, with its hooks, for every attempt. See "
            "[what verify may see](../explanation/honest-results.md#what-verify-may-see).",
            flag="--verify-in WHERE",
            choices=("worktree", "clean"),
        ),
    ] = "worktree"
    verify_keeps: Annotated[
        tuple[str, ...],
        Setting(
            help="what verify commands find although no commit holds it: caches of tools in the worktree",
            details="A folder that matches includes everything in it. `**` keeps everything. See "
            "[what verify may see](../explanation/honest-results.md#what-verify-may-see).",
            expects="a glob or a list of globs",
            example="**/build/**",
            separator="\n",
        ),
    ] = VERIFY_KEEPS
    best_of: Annotated[
        int,
        Setting(
            help="how many candidates a story may have: whole tries, each from the base in a new worktree",
            details="The best one that passes all gates is the result; the others are kept as branches. "
            "Not for stories that follow a flow, nor in a shared tree. A story's own `best_of` takes "
            "precedence. See [best of N](../how-to/best-of-n.md).",
            flag="--best-of N",
            bounds=Bounds(low=1, high=10),
        ),
    ] = 1
    best_of_when: Annotated[
        str,
        Setting(
            help="when the next candidate starts: if none before it has passed, or always",
            details="`failed`: also after one that nothing has judged, for lack of verify commands.",
            flag="--best-of-when WHEN",
            choices=("failed", "always"),
        ),
    ] = "failed"
    hidden_verify: Annotated[
        tuple[str, ...],
        Setting(
            own=True,
            help="a command that must pass on a clean checkout of a done story, and that no session knows",
            details="Only your own settings file or the environment can set it: what a repository holds, "
            "sessions read. See "
            "[hidden commands](../how-to/best-of-n.md#commands-that-candidates-never-see).",
            expects="a command or a list of commands",
            example="~/checks/$AUTOPILOT_STORY_ID",
            separator="\n",
        ),
    ] = ()
    review: Annotated[
        str,
        Setting(
            asks=True,
            help="the agent that reviews verified work and may ask for another attempt",
            details="Written as agent, or agent:model. A story's own `review` takes precedence; `off` there "
            "means no review. See "
            "[a second agent reads the work](../how-to/review-by-an-agent.md).",
            flag="--review AGENT",
            example="codex",
            empty="no review",
        ),
    ] = ""
    max_stories: Annotated[
        int,
        Setting(
            help="how many stories may run in parallel",
            details="The machine may allow fewer, see [tiers](#tiers).",
            flag="--max-stories N",
            bounds=Bounds(low=1, high=MOST_STORIES),
        ),
    ] = 3
    max_attempts: Annotated[
        int,
        Setting(
            help="how many attempts one step of a story has before the story fails",
            details="The first one counts. A story's own `max_attempts` takes precedence. Each attempt needs "
            "a work session, so `max-sessions` may end a step earlier.",
            flag="--max-attempts N",
            bounds=Bounds(low=1, high=50),
        ),
    ] = DEFAULT_ATTEMPTS
    max_sessions: Annotated[
        int | None,
        Setting(
            help="how many work sessions a story may have in a run; auto: 5 for quick, 5 per step for flows",
            details="At the limit the story is stopped, which is an orderly end; `resume` gives it as many "
            "sessions again, and so does your answer to a question of the story. Verify commands do not "
            "count, nor sessions that the agent's service failed.",
            flag="--max-sessions N",
            bounds=Bounds(low=1, high=50),
            absent="auto",
            example="20",
        ),
    ] = None
    max_hours: Annotated[
        float,
        Setting(
            help="how many hours the whole run may take",
            details="After this time no session starts; running sessions finish.",
            flag="--max-hours H",
            bounds=Bounds(low=0.5, high=24, unit="h"),
        ),
    ] = 4.0
    story_minutes: Annotated[
        float | None,
        Setting(
            help="how many minutes of work one story may take",
            details="Only the time of its sessions and verify commands counts, not what it waits for. When "
            "it is over, the running session is ended and the story is stopped. A story's own "
            "`story_minutes` takes precedence.",
            flag="--story-minutes M",
            example="90",
        ),
    ] = None
    inactivity_timeout: Annotated[
        float,
        Setting(
            help="end the run when no story shows any activity for S seconds",
            details="Activity is output or an event of any story.",
            flag="--inactivity-timeout S",
            bounds=Bounds(low=60, high=14400, unit="s"),
        ),
    ] = 1800.0
    stall_seconds: Annotated[
        float,
        Setting(
            help="stop a session that is silent for S seconds, twice in a row",
            details="Silent means without any "
            "[sign of life](../explanation/kill-switches-and-retries.md#signs-of-life).",
            flag="--stall-seconds S",
            bounds=Bounds(low=60, high=3600, unit="s"),
        ),
    ] = 600.0
    spiral_limit: Annotated[
        int,
        Setting(
            help="the spiral of a run, in any story, after which nothing new starts",
            details="An agent that repeats itself is in a "
            "[spiral](../explanation/kill-switches-and-retries.md#after-a-session). With a "
            "higher limit a story that spirals twice ends alone, and the others continue until there are as "
            "many spirals.",
            flag="--spiral-limit N",
            bounds=Bounds(low=2, high=1000),
        ),
    ] = SPIRAL_LIMIT
    stuck_minutes: Annotated[
        float,
        Setting(
            help="end a session of a flow that is active for M minutes and leaves nothing new",
            details="A commit is something new, and so is a file with new content. Steps that the verify "
            "commands judge have no such limit. See "
            "[stuck](../explanation/places-and-state-files.md#stuck).",
            flag="--stuck-minutes M",
            bounds=Bounds(low=0.1, high=1440, unit="min"),
        ),
    ] = 30.0
    confidence_threshold: Annotated[
        float | None,
        Setting(
            help="how certain the next step must be to continue without asking; auto: as past runs show",
            details="Below it you are asked, see [where a story is](flows.md#where-a-story-is); from the "
            "second session of a loop on, the story is stopped. A value below 0.5 is accepted with a "
            "warning. For `auto` see [how accurate it was](session-contract.md#how-accurate-it-was).",
            flag="--confidence-threshold X",
            bounds=Bounds(low=0, high=1),
            absent="auto",
        ),
    ] = DEFAULT_THRESHOLD
    token_budget: Annotated[
        int | None,
        Setting(
            help="start no session once the run has used N tokens",
            details="Only tokens that sessions report count.",
            flag="--token-budget N",
            example="2000000",
        ),
    ] = None
    cost_budget: Annotated[
        float | None,
        Setting(
            help="start no session once the run has cost this many US dollars",
            flag="--cost-budget USD",
            example="25",
        ),
    ] = None
    story_token_budget: Annotated[
        int | None,
        Setting(
            help="start no further session of a story that has used N tokens",
            flag="--story-token-budget N",
            example="200000",
        ),
    ] = None
    story_cost_budget: Annotated[
        float | None,
        Setting(
            help="start no further session of a story that has cost this many US dollars",
            flag="--story-cost-budget USD",
            example="3",
        ),
    ] = None
    session_tokens: Annotated[
        int | None,
        Setting(
            help="how many tokens a session is expected to use, until one has finished",
            details="Reserved for each session of a run with a `token-budget`. Without it, "
            "[earlier runs](../explanation/kill-switches-and-retries.md#budgets) say it, or else 500,000 "
            "are assumed.",
            example="80000",
        ),
    ] = None
    session_cost: Annotated[
        float | None,
        Setting(
            help="how many US dollars a session is expected to cost, until one has finished",
            details="Reserved for each session of a run with a `cost-budget`. Without it, earlier runs say "
            "it, or else 1 is assumed.",
            example="1.5",
        ),
    ] = None
    allow_unpriced: Annotated[
        bool,
        Setting(
            help="start although a cost budget cannot limit an agent, since what its model costs is unknown",
            details="Without it, such a run is refused before it starts.",
            flag="--allow-unpriced",
        ),
    ] = False
    peer_abort: Annotated[
        int,
        Setting(
            help="no session starts on a machine in tier `critical` with more other agent sessions than this",
            bounds=Bounds(low=0, high=1000),
        ),
    ] = 6
    selector: Annotated[
        str,
        Setting(
            asks=True,
            help="a command that decides before each session what comes next, and how certain that is",
            details="See [the selector](session-contract.md#the-selector).",
            flag="--selector CMD",
            example="tools/select",
            empty="built in",
        ),
    ] = ""

    @property
    def threshold(self) -> float:
        """The confidence below which a story does not simply continue."""
        return DEFAULT_THRESHOLD if self.confidence_threshold is None else self.confidence_threshold
