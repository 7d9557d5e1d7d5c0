"""What a scripted case is: one story, what the model does about it, and what its service does meanwhile."""

import json
from dataclasses import dataclass, field
from typing import Any

Act = dict[str, Any]
TALKERS = ("claude", "codex")
OTHERS = ("qwen", "opencode", "gemini", "aider")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A story of its own; `@ID` in its acts is its name.

    `heals`: the model is willing and its service recovers, so the story has to be done in the end. `free`:
    all that goes wrong is its service's, so the first attempt is enough. `lossy`: the agent dies before it
    can say what it used. `part` is the run that it belongs to: cases that pause all
    sessions of an agent, or that need other permissions, have one of their own.
    """

    name: str
    acts: tuple[Act, ...] = ()
    faults: tuple[Act, ...] = ()
    told: tuple[str, tuple[Act, ...]] = ("", ())
    keys: dict[str, Any] = field(default_factory=dict)
    script: dict[str, Any] = field(default_factory=dict)
    heals: bool = False
    free: bool = False
    lossy: bool = False
    part: str = "plain"
    agents: tuple[str, ...] = TALKERS

    @property
    def verify(self) -> str:
        """The command that tells whether its work is right."""
        return str(self.keys.get("verify") or f"sh check.sh {self.name}")

    def body(self, nap: str, *, toolless: bool) -> str:
        """Return the text of the story, with its script."""
        script: dict[str, Any] = {"id": self.name, "acts": self.acts, "faults": self.faults, **self.script}
        script |= {"told": self.told} if self.told[0] else {}
        script |= {"toolless": True} if toolless else {}
        return f"Do as you are told.\n\nPLAY {self._filled(json.dumps(script), nap)}"

    def front(self) -> dict[str, Any]:
        """Return the keys of the story."""
        keys = {"verify": [self.verify], "max_attempts": 3, **self.keys}
        filled: dict[str, Any] = json.loads(self._filled(json.dumps(keys), ""))
        return filled

    def _filled(self, text: str, nap: str) -> str:
        return text.replace("@ID", self.name).replace("@NAP", nap)


def sh(command: str, **more: Any) -> Act:
    """Run a command."""
    return {"sh": command, **more}


def say(words: str) -> Act:
    """Say something and end the turn."""
    return {"say": words}


def at(step: int | str, **fault: Any) -> tuple[Act, ...]:
    """Return one fault, as a case has it."""
    return ({"at": step, **fault},)


RIGHT = sh("mkdir -p work && echo right > work/@ID.txt")
WRONG = sh("mkdir -p work && echo wrong > work/@ID.txt")
COMMIT = sh("git add -A && git commit -q -m work")
