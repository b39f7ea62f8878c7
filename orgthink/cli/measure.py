"""`orgthink measure`: the measures of texts that did not come from us."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from orgthink.errors import UserError


@dataclass(frozen=True)
class Measure:
    """Measure the text of an organizer and its workers: critical path, concurrency, format errors.

    FILE holds one JSON object: {"capacity": 2, "organizer": "… <FORK-1>q</FORK-1> … <JOIN-1>returned</JOIN-1> …",
    "workers": {"1": ["… <RETURN>r</RETURN>"]}}. Tokens are words, each tag counting as one.
    """

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """JSON file; `-` is standard input."""
    json: bool = False
    """Print one JSON object."""

    def __call__(self) -> int:
        from orgthink.measure.text import measure_text

        name = "standard input" if str(self.file) == "-" else str(self.file)
        try:
            text = sys.stdin.read() if str(self.file) == "-" else self.file.read_text(encoding="utf-8-sig")
            measures = measure_text(json.loads(text))
        except RecursionError as error:
            raise UserError(f"{name}: nested too deeply") from error
        except ValueError as error:
            raise UserError(f"{name}: {error}") from error
        if self.json:
            print(json.dumps(measures))
        else:
            width = max(map(len, measures))
            for key, value in measures.items():
                print(f"{key:<{width}}  {_show(value)}")
        return 0


def _show(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
