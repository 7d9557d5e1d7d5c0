"""Cases about the model's service: failures, limits, broken streams, foreign pages and odd numbers."""

from tests.real_agents.cases.case import COMMIT, OTHERS, RIGHT, TALKERS, Case, at, sh

CLAUDE, CODEX = ("claude",), ("codex",)
PORTAL = "<html><title>Sign in to the hotel</title><form></form></html>"
TOO_LONG = "prompt is too long: 210000 tokens > 200000 maximum"
PASSING = (500, 502, 503, 529)
FINAL = (400, 401, 403, 404)


def _twice(name: str, **fault: object) -> list[Case]:
    """Return a fault before anything was done, and one when the work is there."""
    return [
        Case(name=f"{name}-at-first", acts=(RIGHT,), faults=at(0, **fault), heals=True, free=True),
        Case(name=f"{name}-after-work", acts=(RIGHT,), faults=at(1, **fault), heals=True, free=True),
    ]


CASES = [
    *(case for status in PASSING for case in _twice(f"status-{status}", status=status)),
    *(
        Case(
            name=f"status-{status}-storm",
            acts=(RIGHT,),
            faults=at(0, status=status, times=4),
            heals=True,
            free=True,
        )
        for status in PASSING
    ),
    *(
        Case(name=f"status-{status}-for-good", acts=(RIGHT,), faults=at("*", status=status, times=999))
        for status in FINAL
    ),
    *(
        Case(name=f"status-{status}-after-work", acts=(RIGHT,), faults=at(1, status=status, times=999))
        for status in FINAL
    ),
    Case(name="status-413-once", acts=(RIGHT,), faults=at(0, status=413), heals=True),
    Case(
        name="status-413-for-good",
        acts=(RIGHT,),
        faults=at("*", status=413, times=999),
        keys={"max_attempts": 2},
    ),
    Case(
        name="context-full",
        acts=(RIGHT,),
        faults=at(0, status=400, words=TOO_LONG),
        heals=True,
        agents=CLAUDE,
    ),
    Case(
        name="context-full-later",
        acts=(sh("true"), RIGHT),
        faults=at(1, status=400, words=TOO_LONG),
        heals=True,
        agents=CLAUDE,
    ),
    Case(name="model-unknown", faults=at("*", status=404, times=999, words="model: m-9 does not exist")),
    Case(
        name="no-credit",
        faults=at("*", status=400, times=999, words="Your credit balance is too low to access the API"),
    ),
    *_twice("portal", page=PORTAL),
    Case(name="portal-storm", acts=(RIGHT,), faults=at(0, page=PORTAL, times=3), heals=True, free=True),
    Case(name="empty-page", acts=(RIGHT,), faults=at(0, page=""), heals=True),
    *_twice("dropped", drop=True),
    Case(name="dropped-twice", acts=(RIGHT,), faults=at(0, drop=True, times=2), heals=True),
    *_twice("garbage", garbage=True),
    *_twice("overloaded-in-the-stream", error="overloaded_error"),
    *_twice("slow", stall=5),
    Case(name="slow-everywhere", acts=(RIGHT, COMMIT), faults=at("*", stall=3, times=9), heals=True),
    Case(
        name="faults-mixed",
        acts=(sh("true"), RIGHT, COMMIT),
        faults=(*at(0, status=500), *at(1, drop=True), *at(2, status=529)),
        heals=True,
    ),
    Case(name="tokens-none", acts=(RIGHT,), script={"uses": [0, 0]}, heals=True),
    Case(name="tokens-many", acts=(RIGHT,), script={"uses": [150_001, 7_777]}, heals=True),
    Case(
        name="tokens-cached", acts=(RIGHT, COMMIT), script={"uses": [90_000, 3], "cached": 89_999}, heals=True
    ),
    Case(name="tokens-all-cached", acts=(RIGHT,), script={"cached": 1000}, heals=True),
    Case(name="tokens-absurd", acts=(RIGHT,), script={"uses": [900_000_000, 1]}, heals=True, agents=CLAUDE),
    # With as many it sums its conversation up again and again, and would never end by itself.
    Case(
        name="sums-up-without-end",
        acts=(RIGHT,),
        script={"uses": [900_000_000, 1]},
        keys={"story_minutes": 0.5},
        lossy=True,
        agents=CODEX,
    ),
    Case(
        name="limit-waited-for", acts=(RIGHT,), faults=at(0, status=429, after=3), heals=True, part="limits"
    ),
    Case(
        name="limit-after-work", acts=(RIGHT,), faults=at(1, status=429, after=3), heals=True, part="limits"
    ),
    Case(name="limit-without-a-time", acts=(RIGHT,), faults=at(0, status=429), heals=True, part="limits"),
    Case(
        name="limit-in-the-stream",
        acts=(RIGHT,),
        faults=at(0, error="rate_limit_error"),
        heals=True,
        part="limits",
    ),
    Case(name="beside-a-limit", acts=(RIGHT, COMMIT), heals=True, part="limits"),
    Case(
        name="other-500",
        acts=({"write": ["work/@ID.txt", "right\n"]},),
        faults=at(0, status=500),
        heals=True,
        agents=OTHERS,
    ),
    Case(
        name="other-401",
        acts=({"write": ["work/@ID.txt", "right\n"]},),
        faults=at("*", status=401, times=999),
        agents=OTHERS,
    ),
    Case(
        name="other-limit",
        acts=({"write": ["work/@ID.txt", "right\n"]},),
        faults=at(0, status=429, times=8),
        heals=True,
        free=True,
        part="limits",
        agents=OTHERS,
    ),
    Case(
        name="other-dropped",
        acts=({"write": ["work/@ID.txt", "right\n"]},),
        faults=at(0, drop=True),
        heals=True,
        agents=OTHERS[:3],
    ),
    Case(
        name="other-tokens",
        acts=({"write": ["work/@ID.txt", "right\n"]},),
        script={"uses": [5_000, 70]},
        heals=True,
        agents=OTHERS,
    ),
    Case(name="spelled-out", acts=(sh("true"), RIGHT, COMMIT), heals=True, agents=(*TALKERS, *OTHERS[:3])),
]
