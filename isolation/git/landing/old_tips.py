"""Where old tips of stories' branches are kept when a branch starts over or is moved; never deleted."""

from isolation.git.landing.merges import OLD
from isolation.git.repository import Repository


def place_for(repository: Repository, story_id: str, tip: str) -> str:
    """Return the ref under which a tip of a story's branch is kept: a new one, or its own."""
    prefix = f"{OLD}/{story_id}/"
    output = repository.run("for-each-ref", "--format=%(objectname) %(refname)", prefix).stdout
    kept = {ref: commit for commit, _, ref in (line.partition(" ") for line in output.splitlines())}
    found = next((ref for ref, commit in kept.items() if commit == tip), "")
    numbers = [int(name) for ref in kept if (name := ref.removeprefix(prefix)).isdecimal()]
    return found or f"{prefix}{max(numbers, default=0) + 1}"
