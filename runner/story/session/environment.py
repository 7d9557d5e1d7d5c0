"""What every program of a story finds in its environment, and what of the user's is kept from it."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from isolation.git.contained.concealment import conceal
from isolation.git.repository import scrubbed
from isolation.guard.private import STORES, Store
from isolation.guard.seal import Seal, missed
from isolation.guard.sockets import SIGNING, signing
from isolation.model import Confinement, Network, SessionSpec, Workspace
from isolation.network.namespace import PROXY_PORT
from isolation.patterns import pattern
from runner.agents.catalog import KNOWN, Credentials, Reachable, credentials_of, reachable_by
from runner.agents.protocol import Agent
from runner.core.model import RunId, Step, StorySnapshot
from runner.core.settings import SETTINGS, Settings
from runner.core.text.redaction import secret_variables
from runner.story.context.context import RunContext, StoryContext

PROGRAM = "autopilot-multi"
_USERS_OWN = frozenset(declared.variable for declared in SETTINGS.values() if declared.setting.own)
HIDDEN_FROM_SESSIONS = "~/.config/autopilot-multi"
"""Where the user's own settings are, with the hidden verify commands if there are any."""
_DOORS = frozenset(
    (
        "SSH_AUTH_SOCK",
        "SSH_AGENT_PID",
        "SSH_ASKPASS",
        "GPG_AGENT_INFO",
        "DBUS_SESSION_BUS_ADDRESS",
        "GNOME_KEYRING_CONTROL",
        "GIT_ASKPASS",
        "VSCODE_GIT_IPC_HANDLE",
    )
)
"""Variables that lead to a program which hands out keys."""
_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
_LOCAL = "localhost,127.0.0.1,::1"
_LEADING = {
    **{name: _PROXY for each in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") for name in (each, each.lower())},
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _LOCAL),
    "NODE_USE_ENV_PROXY": "1",
}
"""What leads programs to the proxy of a sealed network. Node looks at them only if the last one says so."""
_OFFLINE = pattern(
    r"Network is unreachable|ENETUNREACH|EAI_AGAIN|[Tt]emporary failure in name resolution"
    r"|[Cc]ould not resolve host|getaddrinfo (?:failed|ENOTFOUND)|Name or service not known"
)


class SessionSeal(Struct, frozen=True, kw_only=True):
    """What is kept from one session: the stores that it does not see, and the variables that it lacks.

    In a sealed network it reaches `hosts` besides those that all sessions reach; `variables` lead it there.
    `environ` is the user's environment.
    """

    seal: Seal
    environ: Mapping[str, str]
    stores: tuple[Store, ...]
    shows: tuple[str, ...]
    withheld: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def around(self, spec: SessionSpec) -> SessionSpec:
        """Return the session with everything private hidden, and its network sealed. Blocks."""
        if spec.confinement is None:
            return spec
        sealed = self.seal.around(spec.confinement, self.stores, self.environ, self.shows, self.hosts)
        return replace(spec, confinement=sealed, env={**spec.env, **self.variables})

    def missed(self, output: str, confinement: Confinement) -> str:
        """Describe what a failed session says it missed of all this; empty if nothing."""
        names = [name for name in self.withheld if name in output]
        words = [missed(output, confinement, self.environ)]
        if names:
            listed = ", ".join(names)
            words.append(f"it may need {listed}, which sessions do not get: `pass-env` passes variables")
        if self.seal.network is not None and _OFFLINE.search(output):
            words.append(
                "it may have used the network directly, or looked up a name, which sessions cannot: "
                "they reach the hosts of `seal-network`, through the proxy in HTTPS_PROXY"
            )
        return "; ".join(filter(None, words))


def denied_words(denied: Sequence[str]) -> str:
    """Describe the hosts that a session's proxy refused; empty if there are none."""
    if not denied:
        return ""
    return f"it was kept from reaching {', '.join(denied)}: `seal-network` allows hosts"


def seal_git_commands(run: RunContext) -> None:
    """Let git commands on stories' trees see no more than sessions do, from now on. Blocks.

    What signs commits they see if git is to sign; a network they have no use for.
    """
    found = seal_of(run.write_guard.seal, run.settings, None, run.environ)
    if found is None:
        conceal(None, frozenset())
        return
    signs = run.repository.signs_commits
    shows = (*found.shows, *(signing(run.environ, run.repository.signing_key) if signs else ()))
    closed = Network() if found.seal.network is not None else None

    def around(confinement: Confinement) -> Confinement:
        return replace(found.seal.around(confinement, found.stores, run.environ, shows), network=closed)

    conceal(around, frozenset(found.withheld) - (SIGNING if signs else frozenset()))


def session_seal(context: StoryContext, agent: Agent | None = None) -> SessionSeal | None:
    """Return what is kept from a session of an agent, or from another program; None if nothing is. Blocks."""
    return seal_of(context.run.write_guard.seal, context.settings, agent, context.run.environ)


def seal_of(
    seal: Seal | None, settings: Settings, agent: Agent | None, environ: Mapping[str, str]
) -> SessionSeal | None:
    """Return what a seal with these settings keeps from a session; None without a seal. Blocks."""
    if seal is None:
        return None
    own = _own(agent, environ)
    reached = reachable_by(agent, environ) if agent and seal.network is not None else Reachable()
    passed = (*settings.pass_env, *own.names)
    stores = [
        *STORES,
        *(Store(what="files that `seal-hides` names", paths=(path,)) for path in settings.seal_hides),
        Store(what="the secrets of MCP servers", paths=(f"{HIDDEN_FROM_SESSIONS}/mcp.json",)),
        *(
            (Store(what="hidden verify commands", paths=(HIDDEN_FROM_SESSIONS,)),)
            if settings.hidden_verify
            else ()
        ),
        *(
            Store(what=f"the sign-in of {name}", paths=known.sign_in.places(environ))
            for name, known in KNOWN.items()
        ),
    ]
    # A session that gets a variable also gets the place that it names.
    named = (name for store in STORES for name in store.variables if _matches(name, passed))
    shows = [path for name in named for path in environ.get(name, "").split(os.pathsep) if path]
    return SessionSeal(
        seal=seal,
        environ=environ,
        stores=tuple(stores),
        shows=(*shows, *own.places),
        withheld=tuple(sorted(_withheld(environ, passed, settings))),
        hosts=reached.entries,
        variables={**_LEADING, **reached.variables} if seal.network is not None else {},
    )


def user_environment(context: StoryContext, agent: Agent | None = None) -> dict[str, str]:
    """Return the user's environment without git's pointers, and without what a seal withholds. Blocks.

    What only the user may say, such as that a repository is trusted, is not handed on to a session.
    """
    run = context.run
    return passed_environment(context.settings, agent, run.environ, sealed=run.write_guard.seal is not None)


def passed_environment(
    settings: Settings, agent: Agent | None, environ: Mapping[str, str], *, sealed: bool
) -> dict[str, str]:
    """Return what a session with these settings has of the user's environment. Blocks."""
    kept = {name: value for name, value in scrubbed(environ).items() if name not in _USERS_OWN}
    if not sealed:
        return kept
    passed = (*settings.pass_env, *_own(agent, environ).names)
    withheld = _withheld(kept, passed, settings)
    return {name: value for name, value in kept.items() if name not in withheld}


def _own(agent: Agent | None, environ: Mapping[str, str]) -> Credentials:
    return credentials_of(agent, environ) if agent else Credentials()


def _withheld(environ: Mapping[str, str], passed: tuple[str, ...], settings: Settings) -> set[str]:
    """Return the variables with secrets, unless they are passed on."""
    secret = secret_variables(environ, named={*_DOORS, *settings.secret_variables})
    return {name for name in secret if not _matches(name, passed)}


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_elsewhere: set[str | None] = set()
"""Values of `PATH` that did not lead to this program. Its own path is right whatever is there later."""


def program(environ: Mapping[str, str]) -> str:
    """Return how a session calls this program: by name where its `PATH` finds it, else by its path."""
    script = os.path.join(os.path.dirname(sys.executable), PROGRAM)  # noqa: PTH118, PTH120  for each session
    if not os.access(script, os.X_OK):
        return shlex.join([sys.executable, "-P", "-m", "runner"])
    path = environ.get("PATH")
    if path not in _elsewhere:
        found = shutil.which(PROGRAM, path=path)
        if found is not None and os.path.realpath(found) == os.path.realpath(script):
            return PROGRAM
        _elsewhere.add(path)
    return shlex.quote(script)


def environment_of(
    user: Mapping[str, str],
    story: StorySnapshot,
    workspace: Workspace,
    run_id: RunId,
    *,
    step: Step,
    cwd: Path,
    leased: Mapping[str, str],
) -> dict[str, str]:
    """Return the user's environment, as far as it is passed on, and the story's own variables."""
    return {
        **user,
        # Some programs trust it more than their working directory, and would work in the main checkout.
        "PWD": str(cwd),
        "AUTOPILOT_RUN_ID": run_id,
        "AUTOPILOT_STORY_ID": story.id,
        "AUTOPILOT_STEP": f"{step.number} {step.name}",
        "AUTOPILOT_ATTEMPT": str(story.progress.attempt),
        "AUTOPILOT_CANDIDATE": str(story.candidate),
        "AUTOPILOT_BASE": workspace.base,
        **leased,
    }
