"""`orgthink demo`: which models, organizations and budgets it compares, what it leaves behind, and how it stops."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rule_engine import Rule, RuleEngine, countdown, failing

import orgthink.engines
from orgthink.cli import main
from orgthink.engines import EngineSpec
from orgthink.evaluate.evaluation import Evaluation
from orgthink.record.folder import RunFolder
from orgthink.tools import bubblewrap


@pytest.fixture
def pocket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Rule], RuleEngine]:
    """The shipped models with an engine that follows a rule; give it another rule at will."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    def use(rule: Rule) -> RuleEngine:
        engine = RuleEngine(rule)

        async def open_engine(spec: EngineSpec) -> RuleEngine:
            return engine

        monkeypatch.setattr(orgthink.engines, "open_engine", open_engine)
        return engine

    return use


def test_demo_leaves_summary_and_page_and_may_run_again(pocket, capsys: pytest.CaptureFixture[str]):
    pocket(lambda text: countdown(text) if re.search(r"countdown \d", text) else " so <ANSWER> 7 </ANSWER>")
    for _ in range(2):
        assert main(["demo", "--n", "2"]) == 0
    told = list(json.loads(Path("runs/demo/summary.json").read_text()))
    assert told == ["sequential", "parallel", "untrained", "asyncthink"]
    assert "<html" in Path("runs/demo/view.html").read_text()
    assert "all correct" in capsys.readouterr().out
    plan = RunFolder.open(Path("runs/demo")).settings("eval", Evaluation)
    assert plan.sampling.temperature == 0.3, "parallel needs traces that differ"
    assert plan.limits.max_tokens == 480, "one thinker needs about 300"
    models = {label: (spec.engine or plan.engine).model for label, spec in plan.organizations.items()}
    before = dict.fromkeys(("sequential", "parallel", "untrained"), "pocket")
    assert models == {**before, "asyncthink": "pocket-async"}
    others = {"marsrl": ["vote", "untrained", "marsrl"], "paramanager": ["tool-use", "untrained", "paramanager"]}
    for paper, labels in others.items():
        assert list(json.loads(Path(f"runs/demo-{paper}/summary.json").read_text())) == labels
        assert "<html" in Path(f"runs/demo-{paper}/view.html").read_text()
    plan = RunFolder.open(Path("runs/demo-paramanager")).settings("eval", Evaluation)
    models = {label: (spec.engine or plan.engine).model for label, spec in plan.organizations.items()}
    assert models == {"tool-use": "pocket-tools", "untrained": "pocket-manager-sft", "paramanager": "pocket-manager"}


def test_a_demo_without_a_sandbox_says_how_to_get_one_and_leaves_its_table_out(
    pocket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pocket(lambda text: countdown(text) if re.search(r"countdown \d", text) else " so <ANSWER> 7 </ANSWER>")
    monkeypatch.setenv("PATH", "")
    bubblewrap.check.cache_clear()
    assert main(["demo", "--n", "1"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("no table of ParaManager"))
    assert "apt-get install bubblewrap" in line
    assert Path("runs/demo-marsrl").exists() and not Path("runs/demo-paramanager").exists()


def test_a_demo_that_is_stopped_goes_no_further(pocket):
    pocket(failing)
    assert main(["demo", "--n", "1"]) == 1
    assert Path("runs/demo").exists() and not Path("runs/demo-marsrl").exists()
