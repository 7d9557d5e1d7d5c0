"""Deletion of whole trees, whatever a session left in them."""

import os
import shutil
from pathlib import Path


def delete_tree(tree: Path) -> None:
    """Delete a tree without following links, even if a story left folders read-only."""
    shutil.rmtree(tree, ignore_errors=True)
    if tree.is_dir() and not tree.is_symlink():
        tree.chmod(0o700)
        for folder, names, _ in os.walk(tree):
            for inner in (Path(folder, name) for name in names):
                if not inner.is_symlink():  # chmod would follow it, out of the tree
                    inner.chmod(0o700)
        shutil.rmtree(tree, ignore_errors=True)
