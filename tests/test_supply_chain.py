"""What the program is built from is pinned, bounded, audited and listed."""

import re
import tomllib
from typing import Any

import pytest

from tests.supply_chain import PINNED, ROOT, audit, bill_of_materials, runtime_packages

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_everything_is_pinned_by_hash_and_bounded_for_users() -> None:
    """`make` installs with --require-hashes; a user gets no version that was never meant."""
    entries = re.split(r"\n(?=\S)", PINNED.read_text().strip())
    pinned = {re.split(r"[=\[]", entry)[0] for entry in entries}
    for entry in entries:
        assert re.match(r"\S+==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry
    assert {name.replace("_", "-") for name in runtime_packages()} <= pinned
    assert "--require-hashes -r requirements-dev.txt" in (ROOT / "Makefile").read_text()
    for wanted in PROJECT["project"]["dependencies"]:
        assert re.fullmatch(r"[a-z][a-z0-9]*>=[\d.]+,<\d+", wanted), wanted


def test_a_known_vulnerability_fails_and_silence_is_no_proof() -> None:
    """The forms in which pip-audit answers: a flaw, nothing found, and packages that nobody knows."""
    flaw = {"id": "PYSEC-2026-1", "fix_versions": ["1.1"], "aliases": [], "description": ""}
    sound = {"name": "b", "version": "2", "vulns": []}
    code, words = audit({"dependencies": [{"name": "a", "version": "1", "vulns": [flaw]}, sound]})
    assert code == 1
    assert "a 1: PYSEC-2026-1, fixed in 1.1\n2 pinned packages audited, 1 known vulnerabilities" in words
    assert audit({"dependencies": [sound]}) == (0, "1 pinned packages audited, 0 known vulnerabilities")
    skipped = {"name": "c", "skip_reason": "not found"}
    nothing: tuple[dict[str, Any] | None, ...] = (None, {"dependencies": []}, {"dependencies": [skipped]})
    for found in nothing:
        assert audit(found) == (0, "not audited: the index of known vulnerabilities does not answer here")
    assert "not audited: c" in audit({"dependencies": [sound, skipped]})[1]


@pytest.mark.slow
def test_the_bill_of_materials_lists_what_users_install() -> None:
    """The packages of the program with their versions, and none of those for tests."""
    bill = bill_of_materials()
    versions = {one["name"].lower().replace("_", "-"): one["version"] for one in bill["components"]}
    assert set(versions) == set(runtime_packages())
    assert all(versions.values())
    assert "pytest" not in versions
    direct = {re.split(r">=", one)[0] for one in PROJECT["project"]["dependencies"]}
    assert direct <= set(versions)
    assert bill["bomFormat"] == "CycloneDX"
