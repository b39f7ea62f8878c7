"""Sample episodes and random programs serve the tests of several folders."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent / folder) for folder in (".", "view", "measure")]
