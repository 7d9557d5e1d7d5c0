"""One merge of two commits, without a checkout."""

from isolation.errors import RepositoryError
from isolation.git.forecast.merge_answers import named_in_messages
from isolation.git.repository import Repository, failure

_USAGE = 129


def merge_tree(repository: Repository, ours: str, theirs: str) -> tuple[str, tuple[str, ...]]:
    """Merge two commits without touching any checkout; return the tree, and the paths in conflict."""
    args = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    output = repository.run(*args, check=False)
    if output.returncode == _USAGE:
        raise RepositoryError(
            "merging without a checkout needs git 2.38 or newer",
            hint="install a newer git; a story that depends on one story only needs no merge",
        )
    if output.returncode not in {0, 1}:
        raise failure(args, output)
    tree, *paths = output.fields()
    if output.returncode == 0:
        return tree, ()
    if not paths:  # a folder that was renamed in two directions: no file is in conflict, the merge is
        args = ("merge-tree", "--write-tree", "-z", "--name-only", "--messages", ours, theirs)
        paths = [*named_in_messages(repository.run(*args, check=False))] or ["."]
    return tree, tuple(dict.fromkeys(paths))
