"""`eval --widths`: each organization at several capacities, in one table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from models import tiny_model
from terse import TERSE

from orgthink.cli import main
from orgthink.record.folder import RunFolder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny", "bytes", context=2048)


def given(model: Path, *more: str) -> list[str]:
    shared = ["--task", "parts:independent+parts:chained", "--n", "2", "--max-tokens", "12", "--prompts", TERSE]
    return ["eval", *shared, "--model", str(model), *more]


def test_each_organization_runs_at_each_width(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    arguments = given(model, "--organizations", "parallel", "asyncthink", "--set", "asyncthink.tolerant=true")
    assert main([*arguments, "--widths", "1", "2", "4", "--out", str(out)]) == 0
    episodes = list(RunFolder.open(out).episodes())
    assert {(one.organization, one.capacity) for one in episodes} == {
        (f"{name}-c{c}", c) for name in ("parallel", "asyncthink") for c in (1, 2, 4)
    }
    problems = {
        one.organization: {e.problem.id for e in episodes if e.organization == one.organization} for one in episodes
    }
    assert len({frozenset(ids) for ids in problems.values()}) == 1, "the same problems"
    thinkers = {
        one.capacity: sum(t.role == "thinker" for t in one.traces) for one in episodes if one.organization[0] == "p"
    }
    assert thinkers[1] < thinkers[2] < thinkers[4], "as many thinkers as there are places"
    assert list(json.loads((out / "summary.json").read_text())) == [
        f"{name}-c{c}" for c in (1, 2, 4) for name in ("parallel", "asyncthink")
    ]
    assert "capacity 1, 2, 4;" in capsys.readouterr().out.replace("\n", " ")
    (out / "episodes.jsonl").write_text("".join((out / "episodes.jsonl").read_text().splitlines(keepends=True)[:5]))
    assert main(["eval", "--resume", str(out)]) == 0
    assert {one.id: one.capacity for one in RunFolder.open(out).episodes()} == {
        one.id: one.capacity for one in episodes
    }


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (("--widths", "2", "2"), "each once"),
        (("--widths", "0"), "from 1 on"),
        (("--widths", "2", "--capacity", "3"), "give one of the two"),
        (("--widths", "1", "2"), "--capacity 2 or more"),
    ],
)
def test_widths_that_cannot_be(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], line: str
) -> None:
    out = tmp_path / "run"
    assert main([*given(model, "--organizations", "asyncthink"), *more, "--out", str(out)]) == 2
    assert line in capsys.readouterr().err and not out.exists()
