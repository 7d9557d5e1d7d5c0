"""A stand-in for the model in landings: makes the change of a story, and does as it is told about conflicts.

Started as an agent of the user's own, with the id of the story; the prompt comes on standard input. What it
does about a conflict is in `LANDING_AGENT`: `keep` both sides, `leave` markers, touch a `foreign` file,
or `hang`.
"""

import json
import os
import re
import sys
import time
from pathlib import Path

WORK = {
    "a-search": ("CHANGELOG.md", "- search\n"),
    "b-mail": ("CHANGELOG.md", "- mail\n"),
    "c-sms": ("CHANGELOG.md", "- sms\n"),
}
MARKERS = re.compile(r"^(<<<<<<<|=======|>>>>>>>|\|\|\|\|\|\|\|).*\n", re.MULTILINE)
INVOICE = 'from shop.prices import tax\n\n\ndef invoice(net):\n    return f"{net} + {tax(net)}"\n'
TEST = (
    "import unittest\n\nfrom shop.invoice import invoice\n\n\n"
    "class Invoice(unittest.TestCase):\n"
    "    def test_invoice(self):\n"
    '        self.assertEqual(invoice(100), "100 + 10")\n'
)


def main(story: str) -> int:
    """Play one session."""
    prompt = sys.stdin.read()
    seen = Path(os.environ["LANDING_MEMORY"])
    number = len(list(seen.glob(f"{story}-*")))
    (seen / f"{story}-{number}.md").write_text(prompt)
    if "could not land" in prompt or "merge of two stories" in prompt:
        return resolve(story)
    if story == "d-vat":
        change("shop/prices.py", "def tax(", "def vat(")
        change("shop/total.py", "tax", "vat")
    elif story == "e-invoice":
        Path("shop/invoice.py").write_text(INVOICE)
        Path("tests/test_invoice.py").write_text(TEST)
    else:
        name, line = WORK[story]
        Path(name).write_text(Path(name).read_text() + line)
    return 0


def resolve(story: str) -> int:
    """Do as it is told about a conflict, and adapt to the other story."""
    how = os.environ.get("LANDING_AGENT", "keep")
    sys.stdout.write(f"{how} it\n")
    result = {"status": "done", "usage": {"cost_usd": 0.25}}
    Path(os.environ["AUTOPILOT_RESULT_FILE"]).write_text(json.dumps(result))
    if how == "hang":
        (Path(os.environ["LANDING_MEMORY"]) / "hangs").touch()
        time.sleep(60)
    if how == "foreign":
        Path("shop/label.py").write_text("touched\n")
    if story == "e-invoice":
        change("shop/invoice.py", "tax", "vat")
    elif how != "leave":
        changelog = Path("CHANGELOG.md")
        changelog.write_text(MARKERS.sub("", changelog.read_text()))
    return 0


def change(name: str, old: str, new: str) -> None:
    """Replace a word in a file."""
    Path(name).write_text(Path(name).read_text().replace(old, new))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
