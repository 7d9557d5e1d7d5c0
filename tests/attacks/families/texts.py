"""Texts that command a terminal, a browser or a CI system, in every field that a session fills."""

from tests.attacks.attack import WRITES, Attack, Evidence, Proof

PAYLOADS = {
    "color": ("\x1b[31m", "any"),
    "clear": ("\x1b[2J\x1b[H", "any"),
    "title": ("\x1b]0;evil\x07", "any"),
    "clipboard": ("\x1b]52;c;ZXZpbA==\x07", "any"),
    "hyperlink": ("\x1b]8;;http://evil/\x07", "any"),
    "c1": ("\x9b31m", "any"),
    "dcs": ("\x1bPq\x1b\\", "any"),
    "return": ("\rerror: forged", "terminal"),
    "backspace": ("\b\b\b\b", "any"),
    "bidi": ("\u202egpj.exe", "any"),
    "script": ("<script>alert(1)</script>", "html"),
    "image": ("<img src=x onerror=alert(1)>", "html"),
    "attribute": ('" onmouseover="alert(1)', "html"),
    "command": ("\n::error file=x::forged", "github"),
    "entity": ("]]><evil/>", "junit"),
}
FIELDS = ("notes", "output", "question", "subject", "filename")


def attacks() -> list[Attack]:
    """Return the attacks of this family: one session for each payload, with a field for each attack."""
    return [
        Attack(
            name=f"text-{name}-{field}",
            family="terminal and HTML text",
            script=f'$PYTHON "$SCRIPTS/write_text.py" {name} {field}',
            seal=WRITES,
            proof=_shown(payload, where),
            silent="a text is kept as it is, and made harmless wherever it is shown",
            group=f"notes-{name}" if field == "notes" else f"text-{name}",
        )
        for name, (payload, where) in PAYLOADS.items()
        for field in FIELDS
    ]


def _shown(payload: str, where: str) -> Proof:
    def through(evidence: Evidence, name: str) -> bool:
        tagged = f"[{name}]{payload}"
        return any(
            tagged in text
            for kind, text in evidence.shown.items()
            if where in {"any", kind.partition(" ")[0]}
        )

    return through
