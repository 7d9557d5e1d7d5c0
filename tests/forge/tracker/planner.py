"""Plays an agent of a flow that plans: writes epics, tasks and the other documents of its step.

It sees no tracker. Runs with nothing but the standard library.
"""

import os
import sys
from pathlib import Path

DOCS = Path("_docs/stories", os.environ["AUTOPILOT_STORY_ID"])

FILES = {
    "Problem": {"00_problem/problem.md": "# P\n", "00_problem/acceptance_criteria.md": "# A\n"},
    "Research": {"01_solution/solution.md": "# S\n"},
    "Plan": {
        "02_document/epics.md": "# Epics\n\n## Epic: Storage\n\nKeeps.\n\n## Epic: Shop window\n\nShows.\n",
        "02_document/architecture.md": "# Architecture\n",
    },
    "UI Design": {"02_document/ui_design.md": "# U\n"},
    "Decompose": {
        "02_tasks/01_initial_structure.md": "# Initial structure\n\nEpic: Storage\n\nComplexity: 2\n",
        "02_tasks/02_tables.md": "# Tables\n\nEpic: Storage\nDependencies: 01_initial_structure\n",
        "02_tasks/03_pages.md": "# Pages\n\nEpic: Shop window\nDependencies: 01, 02_tables.md\n",
        "02_tasks/dependencies.md": "Batch 1: 01_initial_structure.md\nBatch 2: 02, 03\n",
    },
}


def main() -> None:
    """Write what the step asks for, unless a file says that this session is to wait for ever."""
    sys.stdin.read()
    step = os.environ["AUTOPILOT_STEP"].partition(" ")[2]
    for name, text in FILES.get(step, {}).items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


main()
