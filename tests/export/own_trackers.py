"""Trackers for tests, named by the path of this file, as one of yours could be."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orgthink.export.trackers import Tracker
from orgthink.record.folder import RunFolder


class Kept:
    """Writes what it gets into kept.jsonl of the run folder."""

    def __init__(self, folder: RunFolder, id: str) -> None:
        self._file, self._id = folder.path / "kept.jsonl", id

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._write({"step": step, "numbers": dict(numbers)})

    def finish(self) -> None:
        self._write({"finished": True})

    def _write(self, line: dict[str, Any]) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(line | {"id": self._id}) + "\n")


def kept(run: Path) -> list[dict[str, Any]]:
    """What `Kept` has written."""
    return [json.loads(line) for line in (run / "kept.jsonl").read_text().splitlines()]


def never_opens(folder: RunFolder, id: str) -> Tracker:
    raise ConnectionError("no route to the tracker")


def exits(folder: RunFolder, id: str) -> Tracker:
    raise SystemExit("log in first")


def never_logs(folder: RunFolder, id: str) -> Tracker:
    return Tracker(lambda step, numbers: 1 / 0, lambda: None)


def never_finishes(folder: RunFolder, id: str) -> Tracker:
    return Tracker(lambda step, numbers: None, lambda: never_opens(folder, id))


def hangs(folder: RunFolder, id: str) -> Tracker:
    return Tracker(lambda step, numbers: threading.Event().wait(), lambda: None)


NUMBER = 3


def named(tracker: str) -> str:
    """What a tracker of this file is called on the command line."""
    return f"{Path(__file__).resolve()}:{tracker}"
