"""Sample episodes, random programs, small tasks and the loopback server serve the tests of several folders."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import settings

FOLDERS = (".", "view", "measure", "engines", "training", "training/marsrl", "coldstart")
"""Where the helpers lie."""

sys.path += [str(Path(__file__).parent / folder) for folder in FOLDERS]

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.register_profile("ci", deadline=None, max_examples=25)
settings.load_profile("ci" if os.environ.get("CI") else "untimed")
