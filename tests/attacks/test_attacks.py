"""What sessions try, at each seal and as each user, and what of it gets through."""

from collections import Counter
from collections.abc import Iterable

import pytest

from runner.core.settings import Settings
from tests.acceptance.people import USERS, somebody
from tests.attacks.attack import FULL, SEALS, SECRETS, WRITES, Attack, stopped_at
from tests.attacks.families import (
    git_data,
    machine,
    network,
    planted,
    processes,
    reads,
    results,
    strange_files,
    texts,
    writes,
)
from tests.attacks.scene import Scene, scene_for
from tests.isolation.guard.guard_scenes import can_mount

sealed = pytest.mark.skipif(not can_mount(), reason="this machine cannot mount")
FAMILIES = (reads, writes, network, git_data, processes, strange_files, machine, planted, results, texts)
ATTACKS = [attack for family in FAMILIES for attack in family.attacks()]
SAMPLE_STEP = 23
ALWAYS = ("git-objects-delete-loose", "planted-thief-file", "planted-thief-variable", "fifo-ignore")
"""What is in every sample, besides each attack of so many."""


COLUMNS = ("tried", "stopped", "through", "named", "cannot", "in vain", "unnamed")
"""`named`: in the reason, the log or a note. `cannot`: nothing is refused that could be named; its `silent`
says why. `in vain`: it fails without a seal, too, so it proves nothing here. `unnamed`: all others."""


def column(scene: Scene, attack: Attack) -> str:
    """Return what became of an attack, besides that it was tried."""
    if attack.proof(scene, attack.name):
        return "through"
    if scene.named(attack):
        return "named"
    if attack.silent:
        return "cannot"
    return "in vain" if scene.in_vain(attack) else "unnamed"


def table(scene: Scene, attacks: Iterable[Attack], seal: str, user: str) -> str:
    """Return what became of the attacks, one line for each family, and those to be looked at by name."""
    counts: dict[str, Counter[str]] = {}
    noted: list[str] = []
    reasons: Counter[tuple[str, str]] = Counter()
    for attack in attacks:
        became = column(scene, attack)
        words = ("tried", became) if became == "through" else ("tried", "stopped", became)
        for family in (attack.family, "all"):
            counts.setdefault(family, Counter()).update(words)
        if became == "cannot":
            reasons[attack.family, attack.silent] += 1
        if became in {"through", "unnamed"}:
            late = " (after its time)" * scene.overdue(attack.name)
            noted.append(f"{became}: {attack.name}{late}: {scene.last_words(attack.name)}")
    total = counts.pop("all", Counter())
    lines = [f"seal {seal}, as {user}", " ".join((f"{'':40}", *(f"{name:>8}" for name in COLUMNS)))]
    for family, found in (*counts.items(), ("all", total)):
        lines.append(" ".join((f"{family:40}", *(f"{found[name]:8}" for name in COLUMNS))))
    lines += [f"{count} of {family} cannot be named: {why}" for (family, why), count in reasons.items()]
    return "\n".join((*lines, *noted))


def judge(scene: Scene, attacks: list[Attack], seal: str, user: str) -> list[str]:
    """Print the table, and return the attacks that got through although the seal must stop them."""
    print(table(scene, attacks, seal, user))  # noqa: T201  the figures of the suite
    missing = [attack.name for attack in attacks if not scene.tried(attack.name)]
    assert not missing, f"not tried: {missing}"
    return [
        attack.name for attack in attacks if stopped_at(attack, seal) and attack.proof(scene, attack.name)
    ]


def known_seals() -> set[str]:
    """Return the seals that this version of the program has."""
    return {seal for seal in SEALS if seal in str(Settings.__annotations__["seal"])}


def test_there_are_hundreds_of_different_attacks() -> None:
    """Each has a name and a script of its own."""
    assert len(ATTACKS) >= 300
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert len({(attack.script, attack.proof) for attack in ATTACKS}) == len(ATTACKS)


@sealed
def test_a_sample_of_attacks_is_stopped_at_the_default() -> None:
    """Some attacks of each family, in one run: none gets through."""
    possible = [attack for attack in ATTACKS if attack.seal in {WRITES, SECRETS}]
    sample = [attack for attack in possible if attack.name in ALWAYS]
    sample += [attack for attack in possible[::SAMPLE_STEP] if attack not in sample]
    with somebody("me") as person, scene_for(person, sample) as scene:
        scene.run()
        assert judge(scene, sample, SECRETS, "me") == []
        assert [each.name for each in sample if column(scene, each) == "unnamed"] == []


@sealed
@pytest.mark.attacks
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("seal", SEALS)
def test_what_a_seal_must_stop_does_not_get_through(seal: str, user: str) -> None:
    """All attacks at one seal; at the weakest, what only others stop shows that the attacks are real."""
    if seal not in known_seals():
        pytest.skip(f"this version has no seal '{seal}'")
    with somebody(user) as person, scene_for(person, ATTACKS) as scene:
        scene.run("--seal", seal)
        assert judge(scene, ATTACKS, seal, user) == []
        if seal == FULL:
            assert [each.name for each in ATTACKS if column(scene, each) == "unnamed"] == []
        real = [attack for attack in ATTACKS if attack.family == "reads" and attack.proof(scene, attack.name)]
        assert seal != WRITES or len(real) > 50
