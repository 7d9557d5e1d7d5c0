"""Which branches would conflict if they were merged, asked of git's own merge without a checkout.

Pairs that cannot conflict by their paths (`contact.py`) are never asked; the others go to one process. What
was found about two commits holds forever, so that a new commit costs its own pairs only.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, product

from msgspec import Struct

from isolation.git.forecast.ancestry import Ancestry
from isolation.git.forecast.contact import Changes, changes_of, pairs_in_contact
from isolation.git.forecast.merge_answers import named_in_messages, read_answers
from isolation.git.forecast.scratch import Scratch
from isolation.git.repository import failure

OLDEST_GIT = (2, 38)
"""The first version that merges without a checkout."""

_MANY_GIT = (2, 39)
"""The first version that does several merges in one process."""

_MERGE = ("merge-tree", "--write-tree", "--name-only")
_DIFF = ("diff-tree", "--stdin", "--always", "-r", "-t", "-z", "--no-renames")


class Clash(Struct, frozen=True, kw_only=True):
    """A conflict that git foresees, and its files; without files, `reason` says why nothing can be merged."""

    files: tuple[str, ...] = ()
    reason: str = ""


_Pair = tuple[str, str]


class Forecaster:
    """Answers which branches conflict, and remembers it."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, str], Changes] = {}
        self._compared: frozenset[str] = frozenset()
        self._in_contact: frozenset[_Pair] = frozenset()  # of what was compared
        self._known: dict[_Pair, Clash | None] = {}
        self.asked = 0

    def clashes(self, place: Scratch, tips: Mapping[str, str]) -> dict[_Pair, Clash]:
        """Return the pairs of names whose commits conflict, with the files."""
        names: dict[str, list[str]] = {}
        for name, commit in tips.items():
            names.setdefault(commit, []).append(name)
        if not names.keys() <= self._compared:
            self._in_contact = frozenset(self._contacts(place, sorted(names)))
            self._compared = frozenset(names)
        contacts = sorted(pair for pair in self._in_contact if names.keys() >= {*pair})
        missing = [pair for pair in contacts if pair not in self._known]
        found = dict(zip(missing, self._merged(place, missing), strict=True))
        self._known = {pair: self._known.get(pair) for pair in contacts} | found
        place_of = {name: number for number, name in enumerate(tips)}
        result: dict[_Pair, Clash] = {}
        for pair, clash in self._known.items():
            if clash is not None:
                for two in product(*(names[commit] for commit in pair)):
                    one, other = sorted(two, key=place_of.__getitem__)
                    result[one, other] = clash
        return dict(sorted(result.items(), key=lambda item: [*map(place_of.__getitem__, item[0])]))

    def _contacts(self, place: Scratch, commits: Sequence[str]) -> set[_Pair]:
        """Return the pairs that git has to be asked about."""
        common = place.run("merge-base", "--octopus", *commits, check=False).stdout.strip()
        if not common:  # no common history
            return set(combinations(commits, 2))
        listed = place.run("rev-list", "--parents", "--stdin", stdin="\n".join([*commits, f"^{common}", ""]))
        group_of, bases = Ancestry.read(common, listed.stdout, commits).groups()
        members: dict[int, list[str]] = {}
        for commit, group in group_of.items():
            members.setdefault(group, []).append(commit)
        wanted = {(common, commit) for commit in commits} | {
            (base, commit)
            for groups, base in bases.items()
            if base is not None
            for commit in _of(members, groups)
        }
        self._load_changes(place, wanted)

        def between(pair: _Pair) -> tuple[int, int]:
            one, other = sorted(group_of[commit] for commit in pair)
            return one, other

        alike = pairs_in_contact({commit: self._changes[common, commit] for commit in commits})
        found = {pair for pair in alike if between(pair) not in bases}
        for groups, base in bases.items():
            near = _of(members, groups)
            pairs = (
                set(combinations(sorted(near), 2))
                if base is None
                else pairs_in_contact({commit: self._changes[base, commit] for commit in near})
            )
            found |= {pair for pair in pairs if between(pair) == groups}
        return found

    def _load_changes(self, place: Scratch, wanted: Collection[tuple[str, str]]) -> None:
        """Ask in one process what the commits changed; forget what is no longer asked for."""
        known = {key: changes for key, changes in self._changes.items() if key in wanted}
        missing = [key for key in wanted if key not in known]
        if missing:
            # A commit with a given parent: the difference is that between the two, whatever its own are.
            lines = "".join(f"{commit} {base}\n" for base, commit in missing)
            fields = place.run(*_DIFF, stdin=lines).fields()
            for key, part in zip(missing, _parts(fields, [commit for _, commit in missing]), strict=True):
                known[key] = changes_of(part)
        self._changes = known

    def _merged(self, place: Scratch, pairs: Sequence[_Pair]) -> Iterator[Clash | None]:
        """Merge each pair; one process does them all, and one more starts after each that git refuses."""
        left = list(pairs)
        self.asked += len(left)
        while left and place.repository.version < _MANY_GIT:
            yield _alone(place, left.pop(0))
        while left:
            lines = "".join(f"{one} {other}\n" for one, other in left)
            answers = read_answers(place.merge(*_MERGE, "--no-messages", "--stdin", stdin=lines).stdout)
            for pair, answer in zip(left, answers, strict=False):
                hidden = not answer.clean and not answer.files
                yield _alone(place, pair) if hidden else None if answer.clean else Clash(files=answer.files)
            refused, left = left[len(answers) : len(answers) + 1], left[len(answers) + 1 :]
            yield from (_alone(place, pair) for pair in refused)


def _of(members: Mapping[int, Sequence[str]], groups: tuple[int, int]) -> list[str]:
    """Return the commits of two groups, or of one that is named twice."""
    return [commit for group in dict.fromkeys(groups) for commit in members[group]]


def _alone(place: Scratch, pair: _Pair) -> Clash | None:
    """Merge one pair by a process of its own, which can say more."""
    args = (*_MERGE, "-z", "--messages", *pair)
    output = place.merge(*args)
    if output.returncode == 0:
        return None
    if output.returncode != 1:
        if place.run("merge-base", *pair, check=False).returncode == 1:
            return Clash(reason="they have no common history")
        raise failure(args, output)
    files, _, _ = output.stdout.partition("\0\0")
    return Clash(files=tuple(dict.fromkeys(files.split("\0")[1:])) or named_in_messages(output))


def _parts(fields: Sequence[str], commits: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split an answer at the commit ids that begin each part; facts begin with a colon."""
    starts: list[int] = []
    at = 0
    while at < len(fields):
        if fields[at].startswith(":"):
            at += 2
        else:
            starts.append(at)
            at += 1
    if [fields[start] for start in starts] != list(commits):
        raise AssertionError("git answered about other commits than asked")
    for start, end in zip(starts, [*starts[1:], len(fields)], strict=True):
        yield fields[start + 1 : end]
