"""The settings of a run, each declared once.

To add a setting, add a field with its `Setting` here (or in `work_settings.py`, which comes first, or in
`setting_groups/`), and use it. The checks of flags, environment variables and files, the command line,
`config`, the file that `init` writes and the reference page follow from the declaration
(`core/declaration.py`); `python docs/generate.py` writes the page.
"""

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from isolation.model import EnforcementLevel
from isolation.network.presets import PRESETS
from runner.core.agent_settings import AgentSettings, Price
from runner.core.declaration import Bounds, Declared, Setting, declared_in
from runner.core.model import ContinuePolicy
from runner.core.setting_groups.cluster_settings import ClusterSettings
from runner.core.setting_groups.repo_settings import RepoSettings
from runner.core.tier_settings import TierSettings
from runner.core.work_settings import ContextSettings, HookSettings

SHARED_WRITABLE = tuple(
    f"**/{name}/**"
    for name in (
        "node_modules",
        ".venv",
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".cache",
    )
)
"""Folders that tools fill for all stories, which no story owns and every story may write to."""


# The levels are declared in `isolation`; a new one is a choice here without further work.
_LEVELS = ("auto", *(level.value for level in EnforcementLevel))


class Settings(ClusterSettings, frozen=True, kw_only=True):
    """One run's settings, after all sources were read."""

    bg_isolation: Annotated[
        str,
        Setting(
            asks=True,
            help="where stories work: each in a worktree of its own, or all in the checkout",
            details="See [one shared tree](../explanation/one-shared-tree.md).",
            flag="--bg-isolation MODE",
            choices=("worktree", "none"),
        ),
    ] = "worktree"
    deconflict_paths: Annotated[
        tuple[str, ...],
        Setting(
            help="which story owns what: a GLOB around all claims, a pattern with {id}, or ID=GLOB,GLOB",
            details="See [claims](claims.md#deconflict-paths).",
            flag="--deconflict-paths SPEC",
            expects="a glob, a pattern with {id}, ID=GLOB, or a list of these",
            example="packages/{id}/**",
            separator="\n",
        ),
    ] = ()
    guard: Annotated[
        bool,
        Setting(
            asks=True,
            help="keep sessions out of the main checkout and other worktrees, where the system can",
            details="See [the threat model](../explanation/threat-model.md).",
            flag="--no-guard",
            flag_help="let sessions write into the main checkout and other worktrees; for agents whose own "
            "sandbox, sudo or ssh does not work under the guard",
        ),
    ] = True
    seal: Annotated[
        str,
        Setting(
            asks=True,
            help="what sessions cannot reach: other stories' files (writes), your keys too (secrets), the "
            "network too (full)",
            details="With `secrets` sessions do not see key stores and other private files, and no variables "
            "that look like secrets, except those of their own agent. With `full` they also reach only the "
            "model of their agent and the hosts of `seal-network`. `auto` is `secrets` where the machine "
            "can do it, else `writes`. See [sealed sessions](../how-to/seal-sessions.md).",
            flag="--seal LEVEL",
            choices=("auto", "writes", "secrets", "full"),
        ),
    ] = "auto"
    seal_network: Annotated[
        tuple[str, ...],
        Setting(
            asks=True,
            help="hosts that sessions reach with the seal `full`, besides the model of their agent",
            details="A host is for ports 80 and 443, `host:port` for another, `*.host` for the names below "
            "it, `10.0.0.0/8` for addresses, `localhost:5432` for a service on this machine. "
            f"{', '.join(f'`{name}`' for name in PRESETS)} stand for the hosts of a package manager. See "
            "[the network](../how-to/seal-sessions.md#the-network).",
            expects="a host, host:port, *.host, a range of addresses, a preset such as @npm, or a list",
            example="registry.example.org",
            hosts=True,
            separator=",",
        ),
    ] = ()
    seal_hides: Annotated[
        tuple[str, ...],
        Setting(
            help="more files and folders that sealed sessions do not see",
            expects="a path that begins with ~ or /, or a list of such paths",
            example="~/Documents",
            anywhere=True,
            separator="\n",
        ),
    ] = ()
    seal_shows: Annotated[
        tuple[str, ...],
        Setting(
            asks=True,
            help="private files and folders that sealed sessions see all the same",
            expects="a path that begins with ~ or /, or a list of such paths",
            example="~/.npmrc",
            anywhere=True,
            separator="\n",
        ),
    ] = ()
    pass_env: Annotated[
        tuple[str, ...],
        Setting(
            asks=True,
            help="variables that sealed sessions get although they look like secrets",
            details="A name, or a pattern such as `TEST_*`. All sessions get them, verify commands and hooks "
            "too; `[agents.NAME] env` is for one agent.",
            expects="the name of a variable or a list of names",
            example="NPM_TOKEN",
            separator=",",
        ),
    ] = ()
    ways_out: Annotated[
        str,
        Setting(
            asks=True,
            help="what happens if verify commands would use the main checkout instead of a worktree",
            details="Only where sessions do not see their own tree under the path of the checkout. See "
            "[ways out](../how-to/close-ways-out.md).",
            flag="--ways-out HOW",
            choices=("refuse", "warn", "ignore"),
        ),
    ] = "refuse"
    enforce: Annotated[
        str,
        Setting(
            asks=True,
            help="how claims in a shared tree are enforced",
            details="A write outside the story's claim goes into an overlay of the story's own (`divert`), "
            "is refused and named (`deny`), or is found afterwards (`detect`). At each level it fails the "
            "session. `auto` takes the best level that the machine offers; where that is only `detect`, "
            "several stories in parallel need `detect` explicitly. See "
            "[three levels](../explanation/one-shared-tree.md#three-levels).",
            flag="--enforce LEVEL",
            choices=_LEVELS,
        ),
    ] = "auto"
    shared_writable: Annotated[
        tuple[str, ...],
        Setting(
            asks=True,
            help="what every story in a shared tree may write to",
            details="A folder that matches includes everything in it. Files that git tracks are refused: "
            "what several stories write there is committed by none. For lock files see "
            "[many packages](../how-to/monorepo-batch.md#lock-files).",
            expects="a glob or a list of globs",
            example="**/build/**",
            separator="\n",
        ),
    ] = SHARED_WRITABLE
    secret_variables: Annotated[
        tuple[str, ...],
        Setting(
            help="environment variables whose values never appear in logs, shards and reports",
            details="Variables whose names look like secrets (`…TOKEN`, `…KEY`, `…PASSWORD` and so on) need "
            "not be listed.",
            expects="the name of a variable or a list of names",
            example="DEPLOY_LOGIN",
            separator=",",
        ),
    ] = ()
    base: Annotated[
        str,
        Setting(
            help="the commit that stories without dependencies start from",
            details="Resolved once, at the start.",
            flag="--base REF",
            filled=True,
        ),
    ] = "HEAD"
    base_follow: Annotated[
        bool,
        Setting(
            help="let stories that have not started begin at the new tip when the base branch moves",
            details="Only if the verify commands work there, as the "
            "[base is asked](../how-to/verify-and-retry.md#the-base-is-asked-first); what was asked of the "
            "same files before is not asked again. A story with dependencies starts from these. Not with "
            "`bg-isolation` `none`.",
            flag="--base-follow",
        ),
    ] = False
    squash: Annotated[
        bool,
        Setting(
            help="leave one commit on the branch of a done story, instead of one for each attempt",
            details="The files are those that were verified, and the original commits stay under "
            "`refs/autopilot/squashed/`. Stories that follow a flow keep the commits of their steps, by "
            "which `rollback` undoes a step. Not with `bg-isolation` `none`.",
            flag="--squash",
        ),
    ] = False
    trust: Annotated[
        str,
        Setting(
            own=True,
            help="whether you are asked before something new of the repository's own files is run or used",
            details="Only a flag, the environment and your own `config.toml` can set it. See "
            "[trust a repository](../how-to/trust-a-repository.md).",
            flag="--trust",
            flag_value="always",
            flag_help="run what the files of the repository ask for this time, without asking you",
            choices=("ask", "always"),
        ),
    ] = "ask"
    continue_: Annotated[
        ContinuePolicy,
        Setting(
            help="what still starts after a failure",
            details="See [dependencies](../how-to/dependencies.md#when-a-dependency-fails).",
            flag="--continue POLICY",
        ),
    ] = ContinuePolicy.DEPENDENCIES_SUCCESSFUL
    grace_seconds: Annotated[
        float,
        Setting(
            help="how many seconds a session has between SIGTERM and SIGKILL when it is stopped",
            flag="--grace-seconds S",
            bounds=Bounds(low=0, high=300, unit="s"),
        ),
    ] = 10.0
    log_cap_mb: Annotated[
        int,
        Setting(
            help="how many MB of a session's output its log keeps: the beginning, and the last MB",
            bounds=Bounds(low=1, high=4096, unit="MB"),
        ),
    ] = 64
    keep_runs_days: Annotated[
        float,
        Setting(
            help="`gc --runs` removes logs and events of finished runs that are older than this many days",
            details="Their records stay, so `history` still shows them. See "
            "[operational limits](../how-to/recover.md#operational-limits).",
            bounds=Bounds(low=0, high=36500, unit="days"),
        ),
    ] = 30.0
    keep_runs_mb: Annotated[
        float,
        Setting(
            help="`gc --runs` removes the oldest finished runs until all together take at most this many MB",
            bounds=Bounds(low=0, high=100_000, unit="MB"),
        ),
    ] = 2000.0
    agents_per_wave: Annotated[
        int,
        Setting(
            help="how many agents a session may use in parallel",
            details="Passed to sessions as `AUTOPILOT_AGENTS_PER_WAVE`, lowered by the [tier](#tiers).",
            bounds=Bounds(low=1, high=50),
        ),
    ] = 6
    persistence: Annotated[
        bool,
        Setting(
            help="whether a run sees other sessions in this repository, and is seen by them",
            details="`false`: a run neither looks for [other sessions](registry.md) nor is listed for them, "
            "and its stories ask nothing about them. The journal and the records are kept.",
        ),
    ] = True
    window: Annotated[
        str,
        Setting(
            help="how many stories run: as many as the machine can handle, or always max-stories",
            details="`adaptive` never exceeds `max-stories` either. With `fixed`, a note says so.",
            flag="--window MODE",
            choices=("adaptive", "fixed"),
        ),
    ] = "adaptive"
    memory_per_story_gb: Annotated[
        float,
        Setting(
            help="how many GB of memory a story is expected to need, at least and until one was measured",
            details="`0` ignores the memory of stories.",
            bounds=Bounds(low=0, high=1024, unit="GB"),
        ),
    ] = 0.5
    dialect: Annotated[
        str,
        Setting(
            help="the format of new state files",
            details="An existing [state file](state-files.md) keeps its format. A story's own `dialect` "
            "takes precedence.",
            flag="--dialect NAME",
            choices=("rich", "pointer", "autodev"),
        ),
    ] = "autodev"
    docs_folder: Annotated[
        str,
        Setting(
            help="where a story that follows a flow keeps its state file and its documents",
            details="`{id}` is the story's id. Without it all stories share one folder, which only suits a "
            "repository with one such story at a time. See "
            "[the folder of a story](flows.md#the-folder-of-a-story).",
            expects='a folder inside the repository, such as "_docs/stories/{id}"',
            inside=True,
            filled=True,
        ),
    ] = "_docs/stories/{id}"
    cross_boundaries: Annotated[
        bool,
        Setting(
            help="continue at session boundaries in a fresh session, without asking",
            details="See [session boundaries](flows.md#session-boundaries).",
            flag="--cross-boundaries",
        ),
    ] = False
    decide_default: Annotated[
        str,
        Setting(
            asks=True,
            help="how questions are answered: by you, or as recommended, for unattended runs",
            details="See [unattended runs](../how-to/answer-decisions.md#unattended).",
            flag="--decide-default HOW",
            choices=("ask", "recommended"),
        ),
    ] = "ask"
    tracker: Annotated[
        str,
        Setting(
            help="the work item tracker for steps that need one",
            details="See [work item tracker](flows.md#work-item-tracker).",
            choices=("jira", "ado", "github", "gitlab", "local"),
            example="local",
            empty="detected",
        ),
    ] = ""
    tracker_auth: Annotated[
        str,
        Setting(
            asks=True,
            help="a shell command that exits with 0 when the tracker can be used",
            details="Run in the worktree before a step that needs the tracker, which is not asked then.",
            example="jira me",
        ),
    ] = ""
    tracker_server: Annotated[
        str,
        Setting(
            asks=True,
            help="the MCP server of the tracker: its name in your MCP settings, a command or an address",
            details="See [work item tracker](flows.md#work-item-tracker).",
            example="uvx mcp-atlassian",
            empty="found by its tools",
        ),
    ] = ""
    tracker_project: Annotated[
        str,
        Setting(
            asks=True,
            help="the project for work items: its key in Jira, its name in Azure DevOps, `OWNER/NAME` on "
            "GitHub, `GROUP/NAME` on GitLab",
            example="SHOP",
            empty="the only one, or the repository of `draft-remote`",
        ),
    ] = ""
    otel_endpoint: Annotated[
        str,
        Setting(
            asks=True,
            help="the OpenTelemetry collector that gets the metrics and traces of runs",
            details="Beside each run, a process sends them there, by OTLP over HTTP. See "
            "[metrics and traces](../how-to/metrics-and-traces.md).",
            example="http://localhost:4318",
        ),
    ] = ""
    context: Annotated[
        ContextSettings,
        Setting(
            help="when a session of a flow should end, and a fresh one continue, since its context is full",
            example="[context]\ncaution-tools = 40\ndanger-tools = 300",
        ),
    ] = field(default_factory=ContextSettings)
    hooks: Annotated[
        HookSettings,
        Setting(
            asks=True,
            help="shell commands around a story's work, run in its workspace",
            example='[hooks]\nafter_create = "npm ci"',
        ),
    ] = field(default_factory=HookSettings)
    agents: Annotated[
        Mapping[str, AgentSettings],
        Setting(
            asks=True,
            help="agents of your own, and changes to known agents; the prompt comes on standard input",
            example='[agents.mine]\nargv = ["./tools/agent", "--story", "{id}"]',
        ),
    ] = field(default_factory=dict)
    prices: Annotated[
        Mapping[str, Price],
        Setting(
            help="what a million tokens of a model cost in US dollars",
            example='[prices."gpt-5"]\ninput = 1.25\noutput = 10',
        ),
    ] = field(default_factory=dict)
    repos: Annotated[
        Mapping[str, RepoSettings],
        Setting(
            asks=True,
            help="short names of other repositories, for the key `repo` of a story: paths or URLs",
            example='[repos]\nweb = "../web"',
            short="at",
        ),
    ] = field(default_factory=dict)
    tiers: Annotated[
        TierSettings,
        Setting(
            help="how many stories may run as the machine gets busy",
            example="[tiers.warn]\nmemory-gb = 3\nstories = 6",
        ),
    ] = field(default_factory=TierSettings)


SETTINGS: Mapping[str, Declared] = {declared.key: declared for declared in declared_in(Settings, Settings())}
"""Every setting by its key, in the order in which the user sees them."""

BOUNDS: dict[str, Bounds] = {
    key: declared.setting.bounds for key, declared in SETTINGS.items() if declared.setting.bounds
}
"""The range of every number that is clamped, by its key."""
