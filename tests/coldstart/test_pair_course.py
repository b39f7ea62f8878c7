"""Supervised fine-tuning on pairs: what is trained, with any model, and exact resumption."""

import json
import signal
from dataclasses import replace

import pytest
import torch
from architectures import tiny
from random_model import END, TURN, write_random_model
from safetensors.torch import load_file
from torch.optim.optimizer import register_optimizer_step_post_hook

from orgthink.models.lora import LoraSettings
from orgthink.models.tokenizer import Tokenizer
from orgthink.models.trainable import open_trainable
from orgthink.record.episode import Message
from orgthink.record.folder import RunFolder
from orgthink.training import checkpoint
from orgthink.training.cluster.sizing.model import QWEN3_4B
from orgthink.training.coldstart.pairs import (
    Pair,
    continued,
    end_of_text,
    pair_rows,
    row_course,
    rows_of,
    write,
)
from orgthink.training.rows import Cursor, Row, batches
from orgthink.training.sft import SftSettings, train

BEGUN = " <FORK-1> scan + </FORK-1> 3 + 4 <JOIN-1> ! 1 + 2 ; </JOIN-1>"
PAIRS = [
    Pair("organizer countdown 1 2 = 3", " <FORK-1> scan + </FORK-1> 3 + 4 <JOIN-1>", "organizer", last=False),
    Pair(f"organizer countdown 1 2 = 3{BEGUN}", " <ANSWER> 1 + 2 </ANSWER>", "organizer", written=len(BEGUN)),
    Pair("worker countdown 1 2 = 3 subtask scan +", " <RETURN> ! 1 + 2 ; </RETURN>", "worker"),
]
SETTINGS = SftSettings(steps=6, warmup=2, batch_rows=8, batch_tokens=100, save_every=2, learning_rate=1e-2)
LORA = LoraSettings(rank=2, dropout=0.3)


@pytest.fixture
def chat(tmp_path):
    """A folder with a chat template."""
    architecture = replace(QWEN3_4B, vocab_size=300, hidden_size=16, intermediate_size=16, head_dim=4)
    return write_random_model(tmp_path / "chat", architecture, layers=1, dtype="float32")


@pytest.fixture
def rows_file(tmp_path):
    write(tmp_path / "rows.jsonl", PAIRS)
    return tmp_path / "rows.jsonl"


def test_the_query_is_masked_and_the_response_trained(tmp_path):
    folder = tiny(tmp_path)
    tokenizer = Tokenizer(folder)
    rows = rows_of(PAIRS, tokenizer, end_of_text(tokenizer, folder))
    for pair, row in zip(PAIRS, rows, strict=True):
        trained = [token for token, on in zip(row.token_ids, row.trained, strict=True) if on]
        seen = [token for token, on in zip(row.token_ids, row.trained, strict=True) if not on]
        assert tokenizer.decode(seen) == pair.query
        assert tokenizer.decode(trained).split() == [*pair.response.split(), *["<eos>"] * pair.last]
        assert row.trained == (False,) * len(seen) + (True,) * len(trained)


def test_only_the_prompt_goes_through_the_template(chat):
    tokenizer = Tokenizer(chat)
    end = end_of_text(tokenizer, chat)
    assert tokenizer.decode([end]) == END
    first, second, _ = (tokenizer.decode(row.token_ids) for row in rows_of(PAIRS, tokenizer, end))
    asked = tokenizer.prompt((Message("user", PAIRS[0].query),)).text
    assert asked.startswith(TURN) and first == asked + PAIRS[0].response
    assert second == asked + BEGUN + PAIRS[1].response + END


def test_the_pairs_of_a_trace_are_one_row(chat):
    tokenizer = Tokenizer(chat)
    first, second, worker = rows_of(PAIRS, tokenizer, end_of_text(tokenizer, chat))
    trace, other = continued([first, second, worker])
    assert (trace.token_ids, trace.pairs, other) == (second.token_ids, 2, worker)
    either = zip((*first.trained, *[False] * (len(second) - len(first))), second.trained, strict=True)
    assert trace.trained == tuple(map(any, either))
    assert continued([first, worker, second]) == [first, worker, second]
    assert continued([second, second]) == [second, second]


def test_a_batch_counts_pairs():
    rows = [Row((i, 1, 2), (False, True, True), pairs=3) for i in range(8)]
    found = batches(lambda seed, epoch: rows, 0, 100, Cursor(), 6)
    assert len(next(found)[0]) == 2


def test_what_joins_brought_spells_no_special_token(chat):
    tokenizer = Tokenizer(chat)
    begun = BEGUN.replace(" ! 1 + 2 ; ", f" {END} ")
    assert begun != BEGUN
    (row,) = rows_of([replace(PAIRS[1], query=PAIRS[0].query + begun, written=len(begun))], tokenizer, 0)
    before = len(tokenizer.prompt((Message("user", PAIRS[0].query),)).token_ids or ())
    assert tokenizer.id_of(END) not in row.token_ids[before:]
    assert tokenizer.decode(row.token_ids[before:-1]) == begun + PAIRS[1].response


@pytest.mark.parametrize("size", [None, 16])
@pytest.mark.parametrize("count", [1, 40, 1300])
def test_every_row_comes_once_an_epoch(count, size):
    """No batch has a row twice while others have not been seen."""
    rows = [Row((i,) * (1 + i % 30), (True,) * (1 + i % 30)) for i in range(count)]
    stream, epochs = batches(lambda seed, epoch: rows, 0, 300, Cursor(), size), []
    for _ in range(3):
        epochs.append([])
        while len(epochs[-1]) < count:
            epochs[-1] += next(stream)[0]
    assert all(sorted(row.token_ids for row in epoch) == [row.token_ids for row in rows] for epoch in epochs)
    assert epochs[0] != epochs[1] or count == 1


def folder(path):
    return RunFolder.open(path) if path.exists() and any(path.iterdir()) else RunFolder.create(path, "train", SETTINGS)


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


@pytest.mark.parametrize(("kind", "lora"), [("Llama", None), ("Llama", LORA), ("Qwen3", LORA), ("Qwen3", None)])
def test_ctrl_c_saves_and_the_run_goes_on_exactly(tmp_path, rows_file, kind, lora):
    base = tiny(tmp_path / "base", kind)

    def go(name):
        course = row_course(open_trainable(base, lora), base, pair_rows(base, rows_file))
        return train(course, SETTINGS, folder(tmp_path / name), lambda line: None)

    whole, steps = go("whole"), 0

    def interrupt(optimizer, args, kwargs):
        nonlocal steps
        steps += 1
        if steps == 3:
            signal.raise_signal(signal.SIGINT)

    hook = register_optimizer_step_post_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        go("cut")
    hook.remove()
    assert checkpoint.saved(tmp_path / "cut")[-1].name == "step-000003"
    cut = go("cut")
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")
    assert metrics(tmp_path / "whole")[-1]["loss"] < metrics(tmp_path / "whole")[0]["loss"]
    (a, b) = (load_file(folder / "model" / "model.safetensors") for folder in (whole, cut))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert Tokenizer(whole / "model").eos_ids == Tokenizer(base).eos_ids
    assert (whole / "model" / "adapter").exists() == (lora is not None)
