"""Which files git would commit just as they are: what filters, line ends and ignore rules decide.

Git converts what it reads, by attributes and settings, and leaves out what is ignored. Here nothing is
converted: a file for which that might make a difference, or which might be ignored, is left to git. So every
question is answered with certainty or not at all.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from isolation.files.plain import open_plain, read_plain
from isolation.git.plain.trees import IndexTrees, LeftToGitError
from isolation.git.repository import Repository

LARGEST = 1 << 20
"""Up to how many bytes a file is read here."""

ATTRIBUTES = b".gitattributes"

_IGNORED = b".gitignore"
_LARGEST_RULES = 1 << 20
_NAME = re.compile(rb"(?!\.git|git~)[ -~]*[!-.0-~]", re.IGNORECASE)
"""Names that git takes on every system: without its own, and without what only some file systems can have."""
_UNUSUAL = re.compile(rb"[\\:\"*?<>|~]")
_CONVERTING = (b"filter", b"encoding", b"ident")
"""Attributes by which git changes more of a file than its line ends."""
_FALSE = frozenset({"false", "no", "off", "0", ""})
_NEEDED = ("core.filemode", "core.symlinks")
"""Settings that are true unless the file system cannot do something."""
_UNWANTED = {
    "attr.tree": frozenset({""}),
    "core.ignorecase": _FALSE,
    "core.precomposeunicode": _FALSE,
    "core.safecrlf": _FALSE | {"warn"},
    "core.sharedrepository": _FALSE | {"umask"},
    "core.sparsecheckout": _FALSE,
    "core.splitindex": _FALSE,
}
"""Settings by which git would do something else, with the values by which it would not."""
_ATTRIBUTES_ELSEWHERE = "GIT_ATTR_SOURCE"
_ELSEWHERE = ("include.", "includeif.", "extensions.")
"""The beginnings of settings whose meaning is not found in them alone."""


class Settings(Struct, frozen=True, kw_only=True):
    """What of git's configuration decides about the content of commits; `seen` are the files that it is from.

    Where it is not `usual`, git has to do it. Rules for attributes and for what is ignored are in files.
    """

    seen: tuple[tuple[str, tuple[int, ...]], ...]
    usual: bool
    attributes: tuple[Path, ...] = ()
    ignored: tuple[Path, ...] = ()


def settings_of(repository: Repository) -> Settings:
    """Return git's configuration as it is now; asked again only when one of its files has changed. Blocks."""
    known: Settings | None = _known.get(repository.common_dir)
    if known is not None and all(_identity(path) == before for path, before in known.seen):
        return known
    found = _known[repository.common_dir] = _read(repository)
    return found


_known: dict[Path, Settings] = {}


def _read(repository: Repository) -> Settings:
    home = os.path.expanduser("~")  # noqa: PTH111  as git does
    own = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    places = {f"{repository.common_dir}/config", f"{home}/.gitconfig", f"{own}/git/config", "/etc/gitconfig"}
    before = {path: _identity(path) for path in places}
    fields = repository.run("config", "--list", "-z", "--show-origin", check=False).stdout.split("\0")
    values: dict[str, str] = {}
    usual = _ATTRIBUTES_ELSEWHERE not in os.environ
    for origin, entry in zip(fields[::2], fields[1::2], strict=False):
        name, _, value = entry.partition("\n")
        key = name.lower()
        values[key] = value if "\n" in entry else "true"
        usual = usual and not key.startswith(_ELSEWHERE)
        if origin.startswith("file:"):
            file = os.path.join(repository.top, origin.removeprefix("file:"))  # noqa: PTH118  text, as above
            before.setdefault(file, _identity(file))
    attributes, ignored = (
        Path(values.get(key) or f"{own}/git/{name}").expanduser()
        for key, name in (("core.attributesfile", "attributes"), ("core.excludesfile", "ignore"))
    )
    usual = (
        usual
        and attributes.is_absolute()
        and ignored.is_absolute()
        and all(values.get(key, "true").lower() not in _FALSE for key in _NEEDED)
        and all(values.get(key, "").lower() in harmless for key, harmless in _UNWANTED.items())
    )
    info = repository.common_dir / "info"
    return Settings(
        seen=tuple(before.items()),
        usual=usual,
        attributes=(info / "attributes", attributes, Path("/etc/gitattributes")),
        ignored=(info / "exclude", ignored),
    )


def _identity(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)  # noqa: PTH116  asked for each commit, so it is quick
    except OSError:
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class PlainFile(Struct, frozen=True, kw_only=True):
    """A file that git would take as it is, and what the file system says of it."""

    mode: bytes
    content: bytes
    found: os.stat_result


def read_file(settings: Settings, tree: Path, name: bytes, trees: IndexTrees) -> PlainFile | None:
    """Read a file of a tree; None if it is gone. Raises LeftToGitError where git has to look. Blocks.

    `trees` are those of the commit before. No session that owns the file may be alive.
    """
    _require_usual_name(name)
    before = trees.get(name)
    if before is not None and before.mode not in {b"100644", b"100755"}:
        raise LeftToGitError("not a file before")
    path = tree / os.fsdecode(name)
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:  # such as a file where a folder was
        raise LeftToGitError("its folder has changed") from error
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
        raise LeftToGitError("not a small file")
    try:
        with os.fdopen(open_plain(path, follow=False), "rb") as file:
            found = os.fstat(file.fileno())
            content = file.read(LARGEST + 1)
            same = _same(found, os.fstat(file.fileno())) and len(content) == found.st_size
    except OSError as error:
        raise LeftToGitError("it cannot be read") from error
    if not same or b"\r" in content or _may_convert(settings, tree, name, trees):
        raise LeftToGitError("git may convert it")
    return PlainFile(
        mode=b"100755" if found.st_mode & stat.S_IXUSR else b"100644", content=content, found=found
    )


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_size, one.st_mtime_ns, one.st_ctime_ns) == (
        other.st_size,
        other.st_mtime_ns,
        other.st_ctime_ns,
    )


def _require_usual_name(name: bytes) -> None:
    parts = name.split(b"/")
    if _UNUSUAL.search(name) or not all(
        _NAME.fullmatch(part) and part not in {b".", b".."} for part in parts
    ):
        raise LeftToGitError("an unusual name")


def _may_convert(settings: Settings, tree: Path, name: bytes, trees: IndexTrees) -> bool:
    """Whether attributes may say that git is to change something other than line ends."""
    # Where the tree has no such file, git reads the one in the commit.
    if any(trees.get(rules) and not _is_file(tree, rules) for rules in _above(name, ATTRIBUTES)):
        return True
    return any(
        word in text for text in _rules(tree, name, ATTRIBUTES, settings.attributes) for word in _CONVERTING
    )


def may_be_ignored(settings: Settings, tree: Path, name: bytes) -> bool:
    """Whether rules may say that git is to leave out a path; False is certain. Blocks."""
    parts = name.split(b"/")
    for text in _rules(tree, name, _IGNORED, settings.ignored):
        for last in _last_parts(text):
            if last is None or any(last.fullmatch(part) for part in parts):
                return True
    return False


def _rules(tree: Path, name: bytes, file: bytes, others: Iterable[Path]) -> Iterator[bytes]:
    """Yield the rules that hold for a path: those in the folders above it, and others."""
    inside = (f"{tree}/{os.fsdecode(rules)}" for rules in _above(name, file))
    for place in (*inside, *map(str, others)):
        try:
            text = read_plain(place, _LARGEST_RULES)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise LeftToGitError("rules that cannot be read") from error
        if len(text) == _LARGEST_RULES:
            raise LeftToGitError("too many rules")
        yield text


def _above(name: bytes, file: bytes) -> list[bytes]:
    """Return the paths of a file in each folder above a path."""
    ends = (at for at in range(len(name)) if name[at : at + 1] == b"/")
    return [file, *(name[: at + 1] + file for at in ends)]


def _is_file(tree: Path, name: bytes) -> bool:
    path = tree / os.fsdecode(name)
    return path.is_file() and not path.is_symlink()


@lru_cache(maxsize=64)
def _last_parts(text: bytes) -> tuple[re.Pattern[bytes] | None, ...]:
    """Return, for each rule that leaves something out, what the last part of such a path has to be like.

    That is less than the rule asks for; None if it is not known.
    """
    rules = (line.rstrip(b"\r").rstrip(b" ") for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
    return tuple(_last_part(rule) for rule in rules if rule and not rule.startswith((b"#", b"!")))


def _last_part(rule: bytes) -> re.Pattern[bytes] | None:
    last = rule.rstrip(b"/").rpartition(b"/")[2]
    if b"\\" in rule or b"[" in rule or last in {b"", b"**"}:
        return None
    wanted = re.escape(last).replace(rb"\*", b".*").replace(rb"\?", b".")
    return re.compile(wanted, re.IGNORECASE | re.DOTALL)
