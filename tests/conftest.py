"""Sample episodes, random programs and the loopback server serve the tests of several folders."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent / folder) for folder in (".", "view", "measure", "engines")]
