"""One session of a chaos campaign: keeps a ledger of its own, leaves one file, and reports what it cost.

Started by the real program as a story's command. The ledger is outside of the repository; each line is one
write with O_APPEND, so that lines of parallel sessions and of killed ones stay whole. It is started many
hundred times, so it loads nothing but what an interpreter has anyway.
"""

import os
import sys
import time

ANSWER = "Ultramarine"
QUESTION = (
    '{"status": "needs-decision", "usage": {"cost_usd": 0.25, "input_tokens": 8, "output_tokens": 2}, '
    f'"decision": {{"question": "Which color?", "options": ["Ocher", "{ANSWER}"], '
    '"recommendation": "B", "reason": "it is calmer"}}'
)
DONE = '{"status": "done", "usage": {"cost_usd": 0.25, "input_tokens": 8, "output_tokens": 2}}'


def main(ledger: str, seconds: str, *tricks: str) -> int:
    """Play one session."""
    story, attempt = os.environ["AUTOPILOT_STORY_ID"], os.environ["AUTOPILOT_ATTEMPT"]
    step, session = os.environ["AUTOPILOT_STEP"].split()[0], os.environ["AUTOPILOT_SESSION_ID"]
    token = os.urandom(8).hex()
    path = f"packages/{story}/{step}-{attempt}-{token}.txt"
    entry = f"{story} {step} {attempt} {session} {path} {token}\n"
    _append(ledger, f"begun {entry}")
    if "daemon" in tricks and os.fork() == 0:
        _linger()
    prompt = sys.stdin.read()
    time.sleep(float(seconds))
    _write(path, f"{token}\n")
    _write(f"packages/{story}/attempt", f"{attempt}\n")
    asks = f"ask:{step}" in tricks and ANSWER not in prompt
    if not asks and (docs := os.environ.get("AUTOPILOT_DOCS")):
        _write(f"{docs}/{step}.md", f"{token}\n")
    _write(os.environ["AUTOPILOT_RESULT_FILE"], QUESTION if asks else DONE)
    _append(ledger, f"ended {entry}")
    return 0


def _linger() -> None:
    """Stay behind as a daemon that ignores what would end it."""
    import signal

    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    time.sleep(600)
    os._exit(0)


def _append(path: str, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
