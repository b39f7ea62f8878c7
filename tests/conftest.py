"""Sample episodes, random programs and the loopback server serve the tests of several folders."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path += [str(Path(__file__).parent / folder) for folder in (".", "view", "measure", "engines")]

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")
