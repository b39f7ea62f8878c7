from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import searched
from attacks.catalogue import Attack, each
from orgthink_arena.searches import costs
from orgthink_arena.searches.meta_agent_search import MetaAgentSearch, MetaAgentSettings
from orgthink_arena.searches.search import Searching
from rule_engine import RuleEngine
from search_state import designs, gone
from searched import ALONE, DESIGNER, fenced, settings

from orgthink.engines import EngineSpec
from orgthink.evaluation.specs import RoleSpec
from orgthink.record.episode import Sampling
from orgthink.record.folder import RunFolder
from orgthink.training.recipes.registry import Training, go_on, start
from orgthink.util import redaction
from orgthink.util.errors import ContextFull, EngineUnavailable, UserError

pytestmark = pytest.mark.thorough
SURVIVES = "No design of a model ends a search, as long as older workflows run"


def meta(**more: Any) -> MetaAgentSearch:
    return MetaAgentSearch(MetaAgentSettings(**settings(**more)))


def run(job: MetaAgentSearch, path: Path) -> list[dict[str, Any]]:
    """The entries of the archive after the search, or after going on with it."""
    folder = RunFolder.open(path) if path.exists() else start(Training("a-search", job), path)
    go_on(folder, lambda line: None)
    return entries(path)


def entries(path: Path) -> list[dict[str, Any]]:
    return json.loads((path / "archive.json").read_bytes())["entries"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("searches") / "whole"
    run(meta(steps=2), path)
    return path


GONE = "What a search lacks of itself is named"


@each(
    Attack("`archive.json` is deleted", GONE, "one line, exit code 2", Path.unlink),
    Attack("`archive.json` without an entry", GONE, "one line, exit code 2",
           lambda file: file.write_text('{"entries": []}')),
)  # fmt: skip
def test_a_search_without_its_archive_does_not_go_on(attack: Attack, whole: Path, tmp_path: Path) -> None:
    cut = shutil.copytree(whole, tmp_path / "cut")
    attack.given(cut / "archive.json")
    with pytest.raises(UserError, match=r"archive.json has no entry, and generations are complete"):
        run(meta(steps=3), cut)


# A model designs.


def small_context(name: str) -> Callable[[str], str]:
    inner = searched.member(name)

    def rule(text: str) -> str:
        if name in gone:
            raise EngineUnavailable("no server")
        if len(text) > 4000:
            raise ContextFull("the context is full")
        return inner(text)

    return rule


async def open_small(rest: str, *, threaded: bool = True) -> RuleEngine:
    return RuleEngine(small_context(rest), model=rest)


def designed(path: Path, *graphs: Any, steps: int = 1) -> list[dict[str, Any]]:
    """The archive of a search whose designer says these, three times each: proposes them, and reflects twice."""
    designs[:] = [lambda text, graph=graph: fenced(graph) for graph in graphs for _ in range(3)]
    own = {name: EngineSpec(f"{Path(__file__).resolve()}:open_small:{name}") for name in ("even", "small")}
    models = {name: RoleSpec(engine, Sampling(20)) for name, engine in own.items()}
    return run(meta(steps=steps, proposer=DESIGNER, engine=own["even"], models=models), path)


def one(**node: Any) -> dict[str, Any]:
    return {"nodes": {"x": {"kind": "agent", **node}}, "output": "x"}


@each(
    Attack("a prompt that is longer than any context", SURVIVES, "accuracy 0",
           one(prompt="say " + "word " * 1500 + "{question}")),
)  # fmt: skip
def test_a_design_that_never_runs_is_one_of_accuracy_0(attack: Attack, tmp_path: Path) -> None:
    *_, bad, good = designed(tmp_path / "run", attack.given, ALONE, steps=2)
    assert (bad["accuracy"], bad["generation"], bad["solved"]) == (0, 1, {})
    assert good["accuracy"] > 0
    again = list(RunFolder.open(tmp_path / "run" / "evaluations" / "1-again").episodes())
    assert len(again) == 1 and again[0].answer is not None
    every = sum(len(list(RunFolder.open(path).episodes())) for path in (tmp_path / "run" / "evaluations").iterdir())
    assert costs.read(tmp_path / "run").episodes == every + 2, "the designs, and what was run again, are paid for"


@each(
    Attack("a text as the number of agents", SURVIVES, "it is left out", one(
        template="sequential", values={"capacity": "x"})),
)  # fmt: skip
def test_a_design_that_is_refused_is_left_out_also_where_it_was_stored(attack: Attack, tmp_path: Path) -> None:
    designs[:] = [lambda text: fenced(attack.given)] * 9
    assert len(run(meta(steps=1, proposer=DESIGNER), tmp_path / "run")) == 2
    designs[:] = [lambda text: fenced(ALONE)] * 3
    assert len(run(meta(steps=1, proposer=DESIGNER), tmp_path / "old")) == 3
    old = tmp_path / "old"
    for name in ("metrics.jsonl", "best.json"):
        (old / name).unlink()
    (old / "archive.json").write_text(json.dumps({"entries": entries(old)[:2]}))
    shutil.rmtree(old / "evaluations" / "1")
    line = json.loads((old / "episodes.jsonl").read_bytes())
    line["answer"] = json.dumps(attack.given)
    (old / "episodes.jsonl").write_text(json.dumps(line) + "\n")
    assert len(run(meta(steps=1, proposer=DESIGNER), old)) == 2


@each(
    Attack(
        "the servers are gone while a model's design is evaluated",
        "A design pays for nothing but itself",
        "the search ends with a line, and goes on from there",
    )
)
def test_where_no_engine_answers_no_design_is_to_blame(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, evaluated = tmp_path / "run", Searching.evaluated

    async def without_engines(self: Searching, generation: int, drafts: Any) -> Any:
        gone[:] = ["even", "small"] if generation else []
        return await evaluated(self, generation, drafts)

    monkeypatch.setattr(Searching, "evaluated", without_engines)
    with pytest.raises(UserError, match=r"4 of 4 episodes failed \(no server"):
        designed(path, ALONE)
    assert len(entries(path)) == 2
    monkeypatch.undo()
    gone.clear()
    assert designed(path)[-1]["accuracy"] > 0


KEY = "sk-verysecret-0123456789"


@each(
    Attack("a design repeats the key in a prompt", SURVIVES, "it is left out", one(prompt=f"say {KEY} {{question}}")),
    Attack("a design repeats the key in a value", SURVIVES, "it is left out",
           {"nodes": {"x": {"kind": "agent", "prompt": "say {question}"}, "y": {"kind": "text", "text": KEY}},
            "output": "x"}),
)  # fmt: skip
def test_a_design_that_repeats_the_key_is_left_out(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redaction, "_forms", ())
    redaction.conceal(KEY)
    designs[:] = [lambda text: fenced(attack.given)] * 6 + [lambda text: fenced(ALONE)] * 3
    assert [each["generation"] for each in run(meta(steps=2, proposer=DESIGNER), tmp_path / "run")] == [0, 0, 2]
    assert not any(KEY in file.read_text() for file in (tmp_path / "run").rglob("*.json*"))
