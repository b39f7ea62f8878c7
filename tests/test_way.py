"""The way of a problem through `orgthink eval`: the files between the command and the organization."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from rule_engine import RuleEngine, countdown
from small import TASK
from terse import TERSE

import orgthink.engines
from orgthink.cli.eval import Eval
from orgthink.engines import EngineSpec
from orgthink.evaluation.plan import PlannedEpisode, Resolved
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Problem

ROOM = f"{Path(orgthink.__file__).parent}/"
MOST = 12
"""Files that a problem may visit."""


def carries(value: object) -> bool:
    return isinstance(value, Problem | PlannedEpisode | Resolved)


def test_a_problem_visits_few_files_before_its_organization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every function of the package that gets the problem, or the plan that holds it, until `run` is called."""
    visited: list[str] = []

    async def open_engine(spec: EngineSpec) -> RuleEngine:
        return RuleEngine(countdown)

    def trace(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(ROOM):
            return
        if frame.f_code is Sequential.run.__code__:
            sys.setprofile(None)
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
        if any(carries(frame.f_locals.get(name)) for name in names):
            visited.append(frame.f_code.co_filename.removeprefix(ROOM))

    monkeypatch.setattr(orgthink.engines, "open_engine", open_engine)
    server = {"model": "m", "url": "http://localhost:9", "prompts": TERSE}
    command = Eval(task=TASK, organizations=("sequential",), n=1, out=tmp_path / "run", **server)
    sys.setprofile(trace)
    try:
        code = command()
    finally:
        sys.setprofile(None)
    assert code == 0
    files = list(dict.fromkeys(visited))
    assert files[-1] == "organizations/sequential.py" and "evaluation/run.py" in files
    assert len(files) <= MOST, files
