"""The actions that the shipped workflows use, played with folders: checkout, artifacts and caches.

They behave as those of the versions that the workflows name: what is uploaded where, what a pattern matches,
and where a checkout leaves the token of the job.
"""

import base64
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from tests.conftest import git

PLAYED = frozenset(
    {
        "actions/checkout",
        "actions/setup-python",
        "actions/cache",
        "actions/cache/restore",
        "actions/cache/save",
        "actions/upload-artifact",
        "actions/download-artifact",
    }
)


class ActionError(Exception):
    """An action failed, and with it its step."""


@dataclass(slots=True, kw_only=True)
class Services:
    """What GitHub keeps outside of jobs: the repository, the artifacts of a run, and caches."""

    origin: Path
    artifacts: Path
    caches: Path
    downloads: dict[str, list[str]] = field(default_factory=dict)

    def perform(
        self, action: str, given: Mapping[str, str], workspace: Path, *, token: str, job: str
    ) -> None:
        """Do what an action does."""
        assert action in PLAYED, f"{action} is not played"
        match action:
            case "actions/checkout":
                self._check_out(given, workspace, token)
            case "actions/upload-artifact":
                self._upload(given, workspace)
            case "actions/download-artifact":
                self.downloads[job] = self._download(given, workspace)
            case "actions/cache" | "actions/cache/restore":
                self._restore(given, workspace)
            case "actions/cache/save":
                self._save(given, workspace)
            case _:
                pass  # Python is there already

    def _check_out(self, given: Mapping[str, str], workspace: Path, token: str) -> None:
        git(workspace.parent, "clone", "-q", "--depth", "1", self.origin.as_uri(), str(workspace))
        git(workspace, "checkout", "-q", "--detach")
        if given.get("persist-credentials", "true") == "true":
            header = base64.b64encode(f"x-access-token:{token}".encode()).decode()
            git(workspace, "config", "http.https://github.com/.extraheader", f"AUTHORIZATION: basic {header}")

    def _upload(self, given: Mapping[str, str], workspace: Path) -> None:
        place = self.artifacts / given["name"]
        if place.exists():
            if given.get("overwrite") != "true":
                raise ActionError(f"an artifact with the name {given['name']} already exists on this run")
            shutil.rmtree(place)
        sources = [workspace / line.strip() for line in given["path"].split("\n") if line.strip()]
        found = [source for source in sources if source.exists()]
        if not found:
            return  # the action warns, and uploads nothing
        if len(sources) == 1:
            _copy(found[0], place if found[0].is_dir() else place / found[0].name)
            return
        for source in found:
            _copy(source, place / source.relative_to(workspace))

    def _download(self, given: Mapping[str, str], workspace: Path) -> list[str]:
        matching = [
            place.name
            for place in sorted(self.artifacts.iterdir())
            if any(fnmatchcase(place.name, pattern) for pattern in braces(given["pattern"]))
        ]
        for name in matching:
            _copy(self.artifacts / name, workspace / given["path"] / name)
        return matching

    def _restore(self, given: Mapping[str, str], workspace: Path) -> None:
        known = sorted(self.caches.iterdir(), key=lambda place: place.stat().st_mtime, reverse=True)
        wanted = [given["key"], *given.get("restore-keys", "").split("\n")]
        exact = [place for place in known if place.name == wanted[0]]
        near = [place for key in wanted if key for place in known if place.name.startswith(key)]
        for place in (exact or near)[:1]:
            _copy(place, workspace)

    def _save(self, given: Mapping[str, str], workspace: Path) -> None:
        place = self.caches / given["key"]
        if not place.exists() and (workspace / given["path"]).exists():
            _copy(workspace / given["path"], place / given["path"])


def braces(pattern: str) -> list[str]:
    """Return the patterns that one with alternatives in braces stands for; one alternative is no list."""
    found = re.search(r"\{([^{}]*,[^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [one for choice in found[1].split(",") for one in braces(before + choice + after)]


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
