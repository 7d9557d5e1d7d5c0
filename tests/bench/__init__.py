"""Ratios against named peers; `make bench`."""

import os

# The repositories are made here, so their commands are our own.
os.environ["AUTOPILOT_MULTI_TRUST"] = "always"
