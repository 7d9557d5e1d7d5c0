"""What a session's own result file is read as."""

import json
from pathlib import Path

from runner.agents.result import load_result


def test_what_is_copied_has_only_numbers_that_json_has(tmp_path: Path) -> None:
    """Records and events are read by other programs, which refuse `NaN`: found by fuzzing."""
    path = tmp_path / "result.json"
    path.write_text(
        '{"status": "needs-decision", "waves": [{"took": NaN}, [Infinity, 1.5]], '
        '"decision": {"question": "Which?", "options": [{"label": "A", "cost": -Infinity}], "at": -5}}'
    )
    result = load_result(path)
    assert result.waves == ({"took": None}, [None, 1.5])
    assert result.decision == {"question": "Which?", "options": [{"label": "A", "cost": None}], "at": -5}
    json.dumps([result.decision, result.waves], allow_nan=False)
