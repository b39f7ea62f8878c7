"""`orgthink demo`: its models and budgets, the files that it leaves, and its sentences."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from orgthink_pocket import demo
from rule_engine import Rule, RuleEngine, countdown, failing

import orgthink.engines
from orgthink.cli import main
from orgthink.engines import EngineSpec
from orgthink.evaluation import grading
from orgthink.results import load_run
from orgthink.tools import bubblewrap


@pytest.fixture
def pocket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Rule], None]:
    """Puts an engine that follows a rule in place of the shipped models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    def use(rule: Rule) -> None:
        async def open_engine(spec: EngineSpec, *, threaded: bool = True) -> RuleEngine:
            return RuleEngine(rule)

        monkeypatch.setattr(orgthink.engines, "open_engine", open_engine)

    return use


def rule(text: str) -> str:
    return countdown(text) if re.search(r"countdown \d", text) else " so <ANSWER> 7 </ANSWER>"


def test_each_paper_is_compared_at_one_budget() -> None:
    plans = demo.plans(5)
    models = {
        part: {label: (spec.engine or plan.engine).model for label, spec in plan.organizations.items()}
        for part, plan in plans.items()
    }
    base = "pocket-base"
    assert models == {
        "asyncthink": {"sequential": base, "parallel": base, "before": base, "after": "pocket-organizer"},
        "marsrl": {"solver": base, "vote": base, "before": base, "after": "pocket-reviewer"},
        "paramanager": {"tool-use": base, "before": base, "after": "pocket-manager"},
    }
    assert plans["asyncthink"].limits.max_tokens == plans["asyncthink"].sampling.max_tokens == 192


def test_it_leaves_a_summary_and_a_page_and_runs_again(pocket, capsys: pytest.CaptureFixture[str]) -> None:
    pocket(rule)
    for _ in range(2):
        assert main(["demo", "--n", "2"]) == 0
    summary = json.loads(Path("runs/demo/summary.json").read_text())
    assert set(summary) >= {"asyncthink", "marsrl"}
    assert list(summary["asyncthink"]) == ["sequential", "parallel", "before", "after"]
    assert "<html" in Path("runs/demo/view.html").read_text()
    out, page = capsys.readouterr().out, Path("runs/demo/view.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
    assert [part["organizations"][0].partition(":")[0] for part in data["parts"]] == list(summary)
    for (name, systems), part in zip(summary.items(), data["parts"], strict=True):
        sentence = demo.PARTS[name].sentence(systems)
        assert sentence in out and part["result"] == sentence, "each part ends in a sentence, here and there"
        assert part["title"].endswith(f"; 2 {demo.PARTS[name].problems}")
    explained = " ".join(data["introduction"])
    assert all(term in explained for term in ("before:", "after:", "Critical path:", "η:", "Seconds are not compared"))
    assert "seconds" not in [column["key"] for column in data["columns"]]
    assert "<title>orgthink demo: three papers, before and after training</title>" in page


@pytest.mark.parametrize("part", ["asyncthink", "marsrl", "paramanager"])
def test_every_model_of_a_part_has_a_seed(part: str) -> None:
    plan = demo.plans(1)[part]
    assert plan.sampling.seed == plan.seed, "the page says this seed"
    assert {role.sampling.seed for role in plan.roles.values()} <= {plan.seed}


def test_it_repeats_on_a_busy_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over, found, threads = threading.Event(), list[dict[str, list[str]]](), set[threading.Thread]()
    grade = grading.grade_or_keep
    monkeypatch.setattr(
        grading, "grade_or_keep", lambda *given: threads.add(threading.current_thread()) or grade(*given)
    )

    def disturb() -> None:
        while not over.wait(0.003):
            sum(range(100_000))

    for busy in (False, True):
        other = threading.Thread(target=disturb, daemon=True)
        if busy:
            other.start()
        plan = replace(demo.plans(2)["asyncthink"], concurrency=3)
        assert asyncio.run(demo.compared(plan, tmp_path / str(busy))) == 0
        run = load_run(tmp_path / str(busy))
        found.append({one.id: [trace.text for trace in one.traces] for one in run.episodes})
    over.set()
    assert found[0] == found[1]
    assert threads == {threading.current_thread()}, "no thread decides which episode ends first"


def test_without_a_sandbox_a_part_is_left_out(
    pocket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pocket(rule)
    monkeypatch.setenv("PATH", "")
    bubblewrap.check.cache_clear()
    assert main(["demo", "--n", "1"]) == 0
    assert "ParaManager is left out" in capsys.readouterr().out
    assert set(json.loads(Path("runs/demo/summary.json").read_text())) == {"asyncthink", "marsrl"}


def test_a_demo_that_fails_goes_no_further(pocket) -> None:
    pocket(failing)
    assert main(["demo", "--n", "1"]) == 1
    assert Path("runs/demo/asyncthink").exists() and not Path("runs/demo/marsrl").exists()


def test_the_sentences_give_each_number_to_its_system() -> None:
    names = ("after", "before", "sequential", "parallel", "solver", "vote", "tool-use")
    summary = {
        name: {
            "all_correct": {"mean": i / 10, "low": 0.0, "high": 0.0},
            "critical_path_steps": {"mean": 100.0 + i},
            "sampled_tokens": {"mean": 200.0 + i},
        }
        for i, name in enumerate(names, 1)
    }
    sentences = [part.sentence(summary) for part in demo.PARTS.values()]  # type: ignore[arg-type]
    found = [re.findall(r"[1-9]\d+%?", text.replace(" 192 tokens", "").replace(" [0%, 0%]", "")) for text in sentences]
    assert found == [
        ["10%", "101", "20%", "102", "30%", "40%", "103", "104"],
        ["10%", "201", "20%", "50%", "60%", "206"],
        ["10%", "101", "20%", "102", "70%", "107"],
    ]
