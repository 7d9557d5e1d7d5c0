"""The program with more slots than it allows: `python -m tests.bench.many_slots 200 run …`.

Nothing else differs. The bound of `max-stories` is for people; a benchmark asks what lies beyond it.
"""

import sys

from msgspec.structs import force_setattr

from runner.core.settings import BOUNDS

if __name__ == "__main__":
    force_setattr(BOUNDS["max-stories"], "high", int(sys.argv.pop(1)))
    from runner.__main__ import main

    main()
