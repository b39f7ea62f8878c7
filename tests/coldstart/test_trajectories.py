"""Which trajectories are selected, what of them is trained, and the training itself."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from echo import ECHO
from engines.models import tiny_model
from hypothesis import given
from hypothesis import strategies as st
from managed_runs import AGENTS, Chatting, managed, recorded
from manager_episodes import NAMES, RIGHT, WRONG, Call, End, episode_of, led, random_rounds, sampled
from random_model import write_random_model
from terse import TERSE

from orgthink.cli import main
from orgthink.engines.local.engine import LocalEngine
from orgthink.grammar.toolcall import CallStatus, render_reply
from orgthink.measure import orchestration
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.paramanager import ParaManager
from orgthink.record.episode import Episode, FormatError, FormatFault, Origin, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.training.cluster.sizing.model import QWEN3_4B
from orgthink.training.coldstart.pairs import end_of_text
from orgthink.training.coldstart.trajectories import Exclusion, manager_row, select
from orgthink.training.rows import row_of

PYTHON, SEARCH, CODE = (Call(name) for name in ("python", "search", "code_reasoner"))
BROKEN = Call("search", CallStatus.EXEC_ERR)
MIXED = [[PYTHON, SEARCH]]


def of(problem: str, sample: int, rounds=MIXED, end: End = "final", grade=RIGHT) -> Episode:
    """A trajectory of a problem."""
    episode = episode_of(rounds, end, grade)
    named = replace(episode.problem, id=problem)
    return replace(episode, id=f"{problem}|paramanager|{sample}", problem=named, sample=sample)


def ended(episode: Episode) -> bool:
    """Whether the manager called final_answer."""
    made = orchestration.rounds(episode)
    return bool(made) and made[-1].ends


def ids(episodes) -> list[str]:
    return [episode.id for episode in episodes]


def retained(episodes, most=0.5) -> list[Episode]:
    """The episodes that are chosen, in order of their ids."""
    known = {episode.id: episode for episode in episodes}
    return [known[i] for i in select(episodes, most=most).ids]


BAD_END = led(sampled(render_reply("done", []) + '<tool_call>{"name": 5}</tool_call>' + '<tool_call>\n{"name": '
              '"final_answer", "arguments": {}}\n</tool_call>'))  # fmt: skip


@pytest.mark.parametrize(
    ("episode", "reason"),
    [
        (of("p", 0, grade=None), Exclusion.UNGRADED),
        (of("p", 0, grade=WRONG), Exclusion.WRONG),
        (of("p", 0, end="direct"), Exclusion.UNENDED),
        (of("p", 0, end="used up"), Exclusion.UNENDED),
        (of("p", 0, end="cut off"), Exclusion.UNENDED),
        (led(), Exclusion.UNENDED),
        (BAD_END, Exclusion.MALFORMED),
        (replace(of("p", 0), traces=(replace(of("p", 0).root, role="solver"),)), Exclusion.UNMANAGED),
    ],
)
def test_what_is_left_out_says_why(episode, reason):
    good = of("q", 0)
    selection = select([episode, good])
    assert selection.ids == (good.id,) and selection.left_out == Counter([reason])
    assert selection.summary == f"1 of 2 trajectories are selected; 1 left out: {reason}"
    assert select([]).ids == () and select([good]).summary == "1 of 1 trajectories are selected"


def test_wrong_answers_are_learned_on_request():
    wrong, ungraded = of("p", 0, grade=WRONG), of("q", 0, grade=None)
    assert select([wrong, ungraded], wrong=True).ids == (wrong.id,)


def test_who_recovered_comes_first():
    plain, failed = of("p", 0), of("p", 1, [[PYTHON, BROKEN], [SEARCH]])
    assert ids(retained([plain, failed], most=1)) == [failed.id]
    slipped = [FormatFault(FormatError.MALFORMED_CALL, "manager", 3, "1.2: unknown")]
    own = replace(of("p", 2, [[PYTHON, Call("serch", CallStatus.PARSE_ERR)], [SEARCH]]), format_faults=tuple(slipped))
    assert ids(retained([plain, own], most=1)) == [own.id], (
        "a malformed call that it recovered from is a failure like others"
    )
    assert ids(retained([plain, own, failed], most=1)) == [failed.id], "yet what it wrote there is trained"
    assert select([plain, own, failed], most=1).left_out == Counter({Exclusion.SPARE: 2})


def test_the_dominating_tool_loses_who_leans_on_it_most():
    leaning = [of(p, 0, [[PYTHON] * 2]) for p in "ab"]
    recovered = of("c", 0, [[Call("python", CallStatus.EXEC_ERR)], [PYTHON]])
    mixed = [of("d", 0, [[PYTHON, SEARCH]]), of("e", 0, [[PYTHON, SEARCH, CODE]])]
    assert ids(retained([*leaning, recovered, *mixed])) == ids(mixed)
    assert ids(retained([*leaning, recovered, *mixed], most=0.7)) == ids([leaning[0], recovered, *mixed])
    assert select([*leaning, recovered, *mixed]).left_out == Counter({Exclusion.DOMINATED: 3})


attempts = st.builds(
    of,
    st.sampled_from("abcdefgh"),
    st.integers(0, 99),
    random_rounds(),
    st.sampled_from(["final", "final", "final", "direct"]),
    st.sampled_from([RIGHT, RIGHT, WRONG, None]),
)
groups = st.lists(attempts, max_size=24, unique_by=lambda episode: episode.id)


@given(groups, st.sampled_from([0.3, 0.5, 0.75, 1.0]), st.randoms())
def test_the_laws_of_what_is_retained(episodes, most, rng):
    kept = retained(episodes, most=most)
    shuffled = rng.sample(episodes, len(episodes))
    assert ids(retained(shuffled, most=most)) == ids(kept), "whatever order they come in"
    assert len({episode.problem.id for episode in kept}) == len(kept)
    calls: Counter[str] = Counter()
    for episode in kept:
        assert episode.grade is not None and episode.grade.all_correct
        assert ended(episode)
        calls += orchestration.tools(episode)
        if not orchestration.recovered(episode):
            others = [other for other in episodes if other.problem.id == episode.problem.id]
            ends = [other for other in others if ended(other)]
            assert not any(map(orchestration.recovered, ends))
    assert all(calls[name] <= most * calls.total() + 1e-9 for name in NAMES)
    selection = select(episodes, most=most)
    assert len(selection.ids) + selection.left_out.total() == len(episodes)
    if most == 1:
        good = {e.problem.id for e in episodes if ended(e) and e.grade == RIGHT}
        assert {episode.problem.id for episode in kept} == good, "one of every problem that has one"


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """The folder of a model without a chat template."""
    return tiny_model(tmp_path_factory.mktemp("words"), "bytes", context=4096)


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    """The folder of a model with another tokenizer, and a chat template."""
    architecture = replace(QWEN3_4B, vocab_size=300, hidden_size=16, intermediate_size=16, head_dim=4)
    folder = tmp_path_factory.mktemp("chat")
    return write_random_model(folder, architecture, layers=1, dtype="float32")


def test_exactly_what_the_manager_sampled_is_trained(words):
    tokenizer = Tokenizer(words)
    (end,) = tokenizer.eos_ids
    episodes = managed(tokenizer)
    for episode in episodes:
        row = manager_row(episode.root, tokenizer, end)
        assert row == row_of(episode.root)
        assert list(row.token_ids) == [i for span in episode.root.spans for i in span.token_ids]
        assert row.trained == tuple(
            span.origin is Origin.SAMPLED for span in episode.root.spans for _ in span.token_ids
        )
    assert any(map(orchestration.recovered, episodes)), "failures are among them"


@pytest.mark.parametrize("player", [None, Chatting])
def test_text_without_ids_makes_the_rows_that_the_model_itself_would_have(words, chat, player):
    """Of a tokenizer without a chat template, and of one with it."""
    folder = words if player is None else chat
    tokenizer = Tokenizer(folder)
    end = end_of_text(tokenizer, folder)
    said = managed(None)
    own = managed(tokenizer, **({} if player is None else {"player": player}))
    for foreign, known in zip(said, own, strict=True):
        assert all(span.token_ids is None for span in foreign.root.spans)
        assert (
            manager_row(foreign.root, tokenizer, end) == manager_row(known.root, tokenizer, end) == row_of(known.root)
        )


async def test_what_an_engine_sampled_is_its_own_tokenizers(words):
    """Whatever it samples: random weights say no words in the order in which a tokenizer would cut them."""
    engine, tokenizer = LocalEngine.open(words), Tokenizer(words)
    organization = ParaManager(TERSE, pool={"a": "arithmetic"}, tools=AGENTS, rounds=2)
    problems = ECHO.problems("train", 0)
    for seed in range(4):
        backing = Backing(engine, Sampling(40, 1.5, seed=seed))
        root = (await attempt(organization, next(problems), backing, roles={"a": backing})).root
        assert manager_row(root, tokenizer, *tokenizer.eos_ids) == row_of(root)
    await engine.aclose()


def trained(arguments, capsys) -> str:
    assert main(["train", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def test_a_run_learns_from_a_run_and_goes_on_exactly(words, tmp_path, capsys, monkeypatch):
    recorded(tmp_path / "episodes", managed(Tokenizer(words)))
    monkeypatch.chdir(tmp_path)
    given = ["paramanager-sft", "--model", words, "--episodes", "episodes", "--steps", "2", "--set", "save_every=1"]
    said = trained([*given, "--out", "whole"], capsys)
    assert "trajectories are selected" in said.splitlines()[0]
    told = json.loads((tmp_path / "whole" / "trajectories.json").read_text())
    assert told["ids"] and f"{len(told['ids'])} of " in said
    trained([*given, "--out", "cut"], capsys)
    cut = tmp_path / "cut"
    last = cut / "checkpoints" / "step-000002"
    last.rename(tmp_path / "gone")
    monkeypatch.chdir("/")
    trained(["--resume", cut], capsys)
    assert metrics(cut) == metrics(tmp_path / "whole") and len(metrics(cut)) == 2
    whole = tmp_path / "whole" / "checkpoints" / "step-000002" / "model" / "model.safetensors"
    assert (last / "model" / "model.safetensors").read_bytes() == whole.read_bytes()
