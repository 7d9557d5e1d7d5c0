"""Jira, by its REST interface: there is no program of its own that people have installed."""

import time
from collections.abc import Callable, Mapping

from runner.forge.curl import open_rest
from runner.forge.errors import SignInError
from runner.forge.rest import Rest, quiet


def open_jira(
    environ: Mapping[str, str],
    *,
    pause: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = quiet,
) -> Rest:
    """Return the door to the Jira of JIRA_URL, with the user's own credentials for it."""
    site = environ.get("JIRA_URL", "").strip()
    if not site:
        raise SignInError(
            "JIRA_URL is not set, so it is not known where your Jira is",
            hint="set JIRA_URL=https://example.atlassian.net, and put your sign-in for it into ~/.netrc.",
        )
    token, personal = environ.get("JIRA_API_TOKEN", ""), environ.get("JIRA_PERSONAL_TOKEN", "")
    name = environ.get("JIRA_USERNAME") or environ.get("JIRA_EMAIL") or ""
    return open_rest(
        environ,
        service="Jira",
        base=site,
        sign_in="put a valid sign-in into ~/.netrc, or set JIRA_USERNAME and JIRA_API_TOKEN",
        headers=[f"Authorization: Bearer {personal}"] if personal else (),
        user=f"{name}:{token}" if name and token and not personal else "",
        pause=pause,
        say=say,
    )
