"""What the program is built from: known vulnerabilities of pinned packages, and a bill of materials.

`python -m tests.supply_chain audit` fails if a pinned package has a known vulnerability. Where the index does
not answer, nothing is known, and it says so. `python -m tests.supply_chain sbom FILE` writes what a user
installs with the program, as CycloneDX JSON.
"""

import json
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PINNED = ROOT / "requirements-dev.txt"
PROGRAM = "autopilot-multi"


def audit(found: dict[str, Any] | None) -> tuple[int, str]:
    """Return the exit code and the words for what pip-audit has found; None if it could not ask."""
    packages = found["dependencies"] if found else []
    asked = [one for one in packages if "vulns" in one]
    if not asked:
        return 0, "not audited: the index of known vulnerabilities does not answer here"
    known = [
        f"{one['name']} {one['version']}: {flaw['id']}, fixed in {', '.join(flaw['fix_versions']) or 'none'}"
        for one in asked
        for flaw in one["vulns"]
    ]
    unknown = [one["name"] for one in packages if "vulns" not in one]
    lines = [*known, f"{len(asked)} pinned packages audited, {len(known)} known vulnerabilities"]
    return int(bool(known)), "\n".join([*lines, *(f"not audited: {name}" for name in unknown)])


def runtime_packages(program: str = PROGRAM) -> set[str]:
    """Return the names of the packages that are installed with the program, without those for tests."""
    found: set[str] = set()
    left = [program]
    while left:
        wanted = (Requirement(line) for line in requires(left.pop()) or ())
        for one in wanted:
            name = canonicalize_name(one.name)
            if name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
                found.add(name)
                left.append(name)
    return found


def bill_of_materials() -> dict[str, Any]:
    """Return the packages that are installed with the program, as CycloneDX describes them."""
    listing = ("-m", "cyclonedx_py", "environment", "--output-reproducible", "--pyproject", "pyproject.toml")
    output = subprocess.run([sys.executable, *listing], cwd=ROOT, check=True, capture_output=True, text=True)
    bill: dict[str, Any] = json.loads(output.stdout)
    names = runtime_packages()
    bill["components"] = [one for one in bill["components"] if canonicalize_name(one["name"]) in names]
    kept = {one["bom-ref"] for one in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    bill["dependencies"] = [
        {**one, "dependsOn": [ref for ref in one.get("dependsOn", []) if ref in kept]}
        for one in bill["dependencies"]
        if one["ref"] in kept
    ]
    return bill


def main(what: str, *arguments: str) -> int:
    """Do what the make target asks for."""
    if what == "sbom":
        Path(arguments[0]).write_text(json.dumps(bill_of_materials(), indent=1) + "\n")
        return 0
    asking = ("-m", "pip_audit", "--format=json", "--progress-spinner=off", "--disable-pip", "--no-deps")
    output = subprocess.run(
        [sys.executable, *asking, "--requirement", str(PINNED)], check=False, capture_output=True, text=True
    )
    code, words = audit(json.loads(output.stdout) if output.stdout.startswith("{") else None)
    print(words)  # noqa: T201  it is what the target is for
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
