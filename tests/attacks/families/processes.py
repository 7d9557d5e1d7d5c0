"""Reaching other processes: the sibling, its keeper, the own keeper, the fork server and the coordinator."""

from tests.acceptance.process_intruder import ACTS
from tests.attacks.attack import WRITES, Attack, worked

_WHO = ("sibling", "its keeper", "own keeper", "server", "coordinator")
_ACT = '$PYTHON "$SCRIPTS/reach.py" "{who}" {act}'


def attacks() -> list[Attack]:
    """Return the attacks of this family."""
    return [
        Attack(
            name=f"process-{act}-{who.replace(' ', '-')}",
            family="processes",
            script=_ACT.format(who=who, act=act),
            seal=WRITES,
            proof=worked(),
        )
        for who in _WHO
        for act in ACTS
    ]
