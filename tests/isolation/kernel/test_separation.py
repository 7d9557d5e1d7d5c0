"""The filter that leaves each process its own limits alone."""

import errno

import pytest

from isolation.kernel import seccomp
from isolation.kernel.separation import limits_filter
from tests.isolation.kernel.filters import answer_of

REFUSED = seccomp.REFUSE | errno.EPERM
CALLS = {
    "x86_64": [(0xC000003E, 302), (0xC000003E, 0x40000000 + 302), (0x40000003, 340)],
    "aarch64": [(0xC00000B7, 261), (0x40000028, 369)],
}


@pytest.mark.parametrize("machine", CALLS)
def test_limits_of_another_process_cannot_be_set(machine: str) -> None:
    """In every architecture of the machine; an address whose lower half is 0 is one, too."""
    code = limits_filter(machine)
    for architecture, number in CALLS[machine]:
        answers = {
            (pid, limit): answer_of(code, number, architecture, [pid, 0, limit])
            for pid in (0, 7)
            for limit in (0, 8, 8 << 32)
        }
        assert {call for call, answer in answers.items() if answer == REFUSED} == {(7, 8), (7, 8 << 32)}
        assert set(answers.values()) == {REFUSED, seccomp.ALLOW}
        others = [answer_of(code, other, architecture, [7, 0, 8]) for other in (0, 1, 2, 59, 1000)]
        assert set(others) == {seccomp.ALLOW}


def test_numbers_that_are_not_known_are_not_guessed() -> None:
    """Then there is no filter, and a trial finds that out."""
    assert limits_filter("riscv64") == b""
