"""The vocabulary of calls: the pocket model's tokens keep their ids, and calls read the same, token by token."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from orgthink_pocket import model as pocket
from orgthink_pocket import tool_model as pocket_tools
from orgthink_pocket.jobs import Calls
from orgthink_pocket.lessons import roles as role_lessons
from orgthink_pocket.lessons.rehearsals import GOOD_AT
from orgthink_pocket.shipped import MODELS
from orgthink_pocket.tool_model import CONFIG, PIECES, vocabulary

from orgthink.grammar.toolcall import (
    CallStatus,
    Response,
    ToolCall,
    read_reply,
    read_responses,
    render_reply,
    render_responses,
)
from orgthink.models.qwen3 import Qwen3
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.paramanager import ParaManager
from orgthink.record.folder import RunFolder
from orgthink.tools.faults import MARK
from orgthink.tools.search import NOTHING
from orgthink.tools.toolbox import FINAL, TOOLS
from orgthink.training.sft import SftSettings

BASE = MODELS / "pocket-roles"
IDS = {word: i for i, word in enumerate(vocabulary())}
SPECIAL = (pocket.PAD, pocket.EOS, pocket.UNK)
WORDS = [word for word in vocabulary() if word not in (*PIECES, *SPECIAL)]

_integers = st.integers(0, pocket.LARGEST_INTEGER).map(str)
_names = st.tuples(*[st.sampled_from(["copper", "silk", "tea"]), st.sampled_from(["lyon", "riga"])]).map(" ".join)
_expressions = st.lists(_integers | _names | st.sampled_from("+-*/()"), min_size=1, max_size=9).map(" ".join)
_tests = st.tuples(_integers, _expressions).map("{0[0]}== {0[1]}".format)
"""As managers write them."""
_models = st.sampled_from(["m1", "m2", "m3"])
_asked = st.one_of(
    st.just({}),
    st.builds(lambda model: {"model_id": model}, _models),
    st.builds(lambda model, what: {"model_id": model, "subtask": f" arithmetic {what}"}, _models, _expressions),
)
"""Who is asked what: a subtask is asked of a model that is named."""
_agents = [tool for tool in TOOLS if tool not in ("python", "search", "ensemble_solver")]
_calls = st.one_of(
    st.builds(
        lambda parts: ToolCall("python", {"code": f"print( {' , '.join(parts)})"}),
        st.lists(_expressions | _tests, min_size=1, max_size=4),
    ),
    st.builds(lambda queries: ToolCall("search", {"query_list": queries}), st.lists(_names, min_size=1, max_size=4)),
    st.builds(ToolCall, st.sampled_from(_agents), _asked),
    st.sampled_from([ToolCall("ensemble_solver", {}), ToolCall(FINAL, {})]),
)
_thoughts = st.lists(st.sampled_from(["compute", "look", "check", "final", "ok", ";"]) | _integers, max_size=12)
_values = st.lists(_expressions | st.sampled_from([MARK, NOTHING, "none", "True", "False True"]), max_size=3).map(
    "\n".join
)
_responses = st.builds(Response, st.sampled_from(TOOLS), st.sampled_from(CallStatus), _values)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("calls")
    pocket_tools.write_folder(folder)
    return Tokenizer(folder)


def _tight(value: object) -> object:
    """A value with the spaces gone, of which every word of the pocket models brings one."""
    if isinstance(value, str):
        return "".join(value.split())
    if isinstance(value, list):
        return [_tight(each) for each in value]
    return {key: _tight(each) for key, each in value.items()} if isinstance(value, dict) else value


# Words


def test_words_of_the_pocket_model_keep_their_ids_and_every_word_has_the_id_of_its_place(tokenizer):
    known = pocket.vocabulary()
    assert vocabulary()[: len(known)] == known and len(set(vocabulary())) == len(vocabulary()) == CONFIG.vocab_size
    for word, i in IDS.items():
        assert tokenizer.encode(word) == (i,), word
    older = Tokenizer(BASE)
    text = " ".join(word for word in known if word not in SPECIAL)
    assert tokenizer.encode(text) == older.encode(text) and tokenizer.eos_ids == older.eos_ids


@given(st.data())
def test_no_piece_matches_inside_ordinary_words(tokenizer, data):
    words = data.draw(st.lists(st.sampled_from(WORDS), max_size=30))
    assert tokenizer.encode(" ".join(words)) == tuple(IDS[word] for word in words)


def test_no_piece_stands_in_a_word():
    assert not [word for word in WORDS if any(piece in word for piece in PIECES)]


def test_lessons_of_the_roles_are_read_as_the_smaller_vocabulary_reads_them(tokenizer):
    older = Tokenizer(BASE)
    lessons = role_lessons.lessons("form", 0, 0)
    for _ in range(100):
        for span in next(lessons).spans:
            assert tokenizer.encode(span.text) == older.encode(span.text)


def test_what_managers_are_told_is_known(tokenizer):
    told = f"{' '.join(GOOD_AT)} {MARK} {NOTHING} left 5 final {' '.join(ParaManager.tools)}"
    assert IDS[pocket.UNK] not in tokenizer.encode(told)


# Calls


@given(_thoughts, st.lists(_calls, min_size=1, max_size=4))
def test_a_reply_is_read_from_its_tokens_as_from_its_text(tokenizer, thoughts, calls):
    text = render_reply(" ".join(thoughts), calls)
    ids = tokenizer.encode(text)
    told = tokenizer.decode(ids)
    assert IDS[pocket.UNK] not in ids and tokenizer.encode(told) == ids
    said, heard = read_reply(text), read_reply(told)
    assert heard.well_formed and said.well_formed
    assert (heard.reasoning or "").split() == thoughts
    assert [(call.name, _tight(call.arguments)) for call in heard.calls if isinstance(call, ToolCall)] == [
        (call.name, _tight(call.arguments)) for call in calls
    ]


@given(st.lists(_responses, min_size=1, max_size=4))
def test_responses_are_read_from_their_tokens_as_from_their_text(tokenizer, responses):
    text = render_responses(responses)
    ids = tokenizer.encode(text)
    told = tokenizer.decode(ids)
    assert IDS[pocket.UNK] not in ids and tokenizer.encode(told) == ids
    heard = read_responses(told)
    assert [(each.name, each.status, _tight(each.value)) for each in heard] == [
        (each.name, each.status, _tight(each.value)) for each in responses
    ]
    assert [each.value.count("\n") for each in heard] == [each.value.count("\n") for each in responses]


def test_a_call_takes_three_tokens_and_what_it_asks(tokenizer):
    words = ["<reasoning>", "compute", "3", "*", "17", "</reasoning>"]
    calls = [
        ToolCall("python", {"code": "print( 3 * 17 , 51== 3 * 17)"}),
        ToolCall("code_reasoner", {"model_id": "m2", "subtask": " arithmetic 3 * 17"}),
        ToolCall("search", {"query_list": ["silk riga", "tea lyon"]}),
        ToolCall(FINAL, {}),
    ]
    opening, closing = PIECES[0], "\n</tool_call>\n"
    pieces = [
        *(opening, "python", '", "arguments": {"code": "print(', "3", "*", "17", ",", "51", "==", "3", "*", "17"),
        *(f')"}}}}{closing}', opening, "code_reasoner", '", "arguments": {"model_id": "', "m2", '", "subtask": "'),
        *("arithmetic", "3", "*", "17", f'"}}}}{closing}'),
        *(opening, "search", '", "arguments": {"query_list": ["', "silk", "riga", '", "', "tea", "lyon"),
        *(f'"]}}}}{closing}', opening, FINAL, f'", "arguments": {{}}}}{closing}'),
    ]
    assert tokenizer.encode(render_reply(" compute 3 * 17 ", calls)) == tuple(IDS[w] for w in (*words, *pieces))


def test_a_piece_out_of_place_makes_a_call_that_cannot_be_read_and_nothing_worse(tokenizer):
    rng = random.Random(0)
    ids = tokenizer.encode(render_reply("compute", [ToolCall("python", {"code": "print( 3 * 17)"})]))
    readings = [read_reply(tokenizer.decode(rng.sample(ids, len(ids)))) for _ in range(100)]
    assert not all(reply.well_formed for reply in readings)


# Weights


@pytest.fixture(scope="module")
def wider(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wider")
    pocket_tools.write_folder(folder)
    pocket_tools.widened(BASE, 3).save(folder)
    return folder


def test_a_widened_model_keeps_what_it_knows_and_gets_rows_for_what_it_does_not(wider):
    base, model = Qwen3.load(BASE).to_hf(), Qwen3.load(wider).to_hf()
    assert base.keys() == model.keys()
    grown = {name for name in base if base[name].shape != model[name].shape}
    assert "model.embed_tokens.weight" in grown
    for name, weight in base.items():
        assert torch.equal(model[name][: len(weight)], weight), name
        assert name not in grown or model[name].shape == (CONFIG.vocab_size, CONFIG.hidden_size)
    added = model["model.embed_tokens.weight"][len(pocket.vocabulary()) :]
    assert (added.norm(dim=1) > 0).all() and len({tuple(row.tolist()) for row in added}) == len(added)


def test_the_rows_that_are_added_are_drawn_from_the_seed():
    def added(seed):
        return pocket_tools.widened(BASE, seed).to_hf()["model.embed_tokens.weight"]

    assert torch.equal(added(1), added(1)) and not torch.equal(added(1), added(2))


def test_a_model_that_has_the_vocabulary_passes_through(wider):
    known, again = Qwen3.load(wider).to_hf(), pocket_tools.widened(wider, 4).to_hf()
    assert known.keys() == again.keys() and all(torch.equal(known[name], again[name]) for name in known)


def test_a_widened_model_says_the_same_of_words_that_it_knows(wider):
    """But for the odds of new words, which an untrained row gives."""
    base, model = Qwen3.load(BASE), Qwen3.load(wider)
    ids = Tokenizer(BASE).encode("sequential arithmetic 3 * 17 + 2 3 * 17 = 51 ;")
    size = len(pocket.vocabulary())
    with torch.no_grad():
        one, other = base(torch.tensor([ids])), model(torch.tensor([ids]))
    assert other.shape[-1] == CONFIG.vocab_size
    assert torch.allclose(one, other[..., :size], atol=1e-5)


def test_a_stopped_cold_start_goes_on_without_the_model_that_it_began_with(tmp_path: Path) -> None:
    shutil.copytree(BASE, tmp_path / "start")
    settings = SftSettings(steps=3, batch_tokens=600, batch_rows=4, warmup=1, save_every=2)
    job = Calls(model=str(tmp_path / "start"), settings=settings)
    whole: list[dict[str, float]] = []
    job.run(RunFolder.create(tmp_path / "whole", "train", job), whole.append)

    def stop(line: dict[str, float]) -> None:
        if line["step"] == 3:  # after the checkpoint of step 2
            raise RuntimeError("stopped")

    folder = RunFolder.create(tmp_path / "run", "train", job)
    with pytest.raises(RuntimeError):
        job.run(folder, stop)
    shutil.rmtree(tmp_path / "start")
    rest: list[dict[str, float]] = []
    job.run(folder, rest.append)
    assert [line["loss"] for line in rest] == [whole[-1]["loss"]]
