"""Result files that lie: numbers, types, sizes and texts that no honest session writes."""

from tests.attacks.attack import WRITES, Attack, Evidence

_NAMED = {
    "no-object": "should be an object",
    "no-json": "Invalid JSON",
    "null": "should be an object",
    "unknown-status": "result file cannot be used: status",
    "waves": "agent_summary.failed",
    "deep": "recursion limit",
    "long": "larger than",
    "surrogate": "Invalid JSON",
    "effectiveness": "effectiveness.planned_issues, effectiveness.carryover",
    "usage": "usage.input_tokens, usage.output_tokens, usage.cost_usd",
}
"""How the program names what it does not accept, unless it is the one amount in the file."""
_SILENT = {
    "unknown-key": "keys that the program does not know mean nothing to it",
    "twice": "it is a valid file, by which the session reports that it failed",
    "nul": "a text is kept as it is, and made harmless wherever it is shown",
}
_RESULTS = {
    "negative-tokens": '{"usage": {"input_tokens": -1000000}}',
    "negative-cost": '{"usage": {"cost_usd": -5}}',
    "nan-cost": '{"usage": {"cost_usd": NaN}}',
    "infinite-cost": '{"usage": {"cost_usd": Infinity}}',
    "minus-infinite": '{"usage": {"cost_usd": -Infinity}}',
    "huge-tokens": '{"usage": {"input_tokens": 1e308}}',
    "overflow": '{"usage": {"input_tokens": 99999999999999999999999999}}',
    "text-number": '{"usage": {"input_tokens": "many"}}',
    "list-number": '{"usage": {"cost_usd": [1]}}',
    "true-number": '{"usage": {"input_tokens": true}}',
    "no-object": "[]",
    "no-json": "{",
    "null": "null",
    "unknown-key": '{"guard": false, "seal": "writes"}',
    "unknown-status": '{"status": "landed"}',
    "twice": '{"status": "done", "status": "failed"}',
    "waves": '{"total_waves": -3, "agent_summary": {"failed": -9}}',
    "deep": '{"waves": DEEP}',
    "long": '{"notes": "LONG"}',
    "surrogate": '{"notes": "\\ud800"}',
    "nul": '{"notes": "a\\u0000b"}',
    "effectiveness": '{"effectiveness": {"planned_issues": -1, "carryover": 1e400}}',
    "usage": '{"usage": {"input_tokens": -7, "output_tokens": NaN, "cost_usd": -1}}',
}


def attacks() -> list[Attack]:
    """Return the attacks of this family."""
    return [
        Attack(
            name=f"result-{name}",
            family="result files",
            script=f"echo x > x-{name}; $PYTHON \"$SCRIPTS/write_result.py\" '{text}'",
            seal=WRITES,
            proof=_counted,
            group=f"result-{name}",
            target=""
            if name in _SILENT
            else _NAMED.get(name, "cost_usd" if "cost_usd" in text else "input_tokens"),
            silent=_SILENT.get(name, ""),
        )
        for name, text in _RESULTS.items()
    ]


def _counted(evidence: Evidence, name: str) -> bool:
    """Whether the run's own numbers are not numbers any more, or it has crashed."""
    return f"{name} is counted" in evidence.shown.get("counted", "")
