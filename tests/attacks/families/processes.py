"""Reaching other processes: the sibling, its keeper, the own keeper, the fork server and the coordinator."""

from tests.acceptance.process_intruder import ACTS
from tests.attacks.attack import WRITES, Attack, worked

_WHO = {
    "sibling": "sh (",
    "its keeper": "apm-keeper (",
    "own keeper": "apm-keeper (",
    "server": "apm-server (",
    "coordinator": "processes that are not its own",
}
"""Each with what names it."""
_BY_FILES = {"cwd", "task", "root", "fd", "environ", "maps", "mem"}
"""Acts by files below `/proc`, which are named by their paths."""
_LIMITS = "a filter in the kernel refuses it, which tells the session alone"
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
            target="/proc/" if act in _BY_FILES else target,
            silent=_LIMITS if act == "limit" else "",
        )
        for who, target in _WHO.items()
        for act in ACTS
    ]
