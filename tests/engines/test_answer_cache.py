"""Answers on disk: the same request is not sent twice, another one is, and a file that is no answer is none."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loopback import MODEL, Play, Server, babbles, dies, loopback, says, sends
from small import TASK_OF_THREE
from terse import TERSE
from test_endpoint import asked, opened

from orgthink.api import aevaluate
from orgthink.cli import main
from orgthink.engines import EngineSpec
from orgthink.engines.endpoint.cache import FREE, AnswerCache
from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.engines.engine import Chunk, EngineError, FinishReason
from orgthink.measure.usage import Price
from orgthink.record.episode import Sampling

SEEDED = Sampling(50, seed=3)


async def engine_of(server: Server, folder: Path, **settings: Any) -> EndpointEngine:
    return await opened(server, cache=AnswerCache(folder), **settings)


async def read(engine: EndpointEngine, sampling: Sampling = SEEDED, text: str = "Say something.") -> list[Chunk]:
    return [chunk async for chunk in engine.stream(asked(engine, text), sampling)]


def text_of(chunks: list[Chunk]) -> str:
    return "".join(piece for chunk in chunks for piece in chunk.pieces)


def logged(text: str) -> str:
    """An event with a token and its log-probability."""
    content = [{"token": text, "logprob": -0.5}]
    return json.dumps({"choices": [{"delta": {"content": text}, "logprobs": {"content": content}}]})


END = '{"choices": [{"delta": {}, "finish_reason": "stop"}]}'
USAGE = '{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 7}}'


async def test_an_answer_is_read_again_as_it_was(tmp_path: Path) -> None:
    thought = '{"choices": [{"delta": {"reasoning": "hm"}}]}'
    async with loopback(sends(thought, logged("é "), logged("b"), END, USAGE, "[DONE]")) as server:
        engine = await engine_of(server, tmp_path)
        first = await read(engine)
        await engine.aclose()
        another = await engine_of(server, tmp_path)
        second = await read(another)
        await another.aclose()
    assert len(server.exchanges) == 1
    assert second == [*first[:-1], replace(first[-1], billed=FREE)], "nothing is billed for it"
    assert first[-1].billed != FREE and second[-1].tokens == 7


OTHERS: list[dict[str, Any]] = [{"seed": 4}, {"max_tokens": 51}, {"stop": ("x",)}, {"top_p": 0.5}, {"temperature": 0.5}]


@pytest.mark.parametrize("changes", OTHERS, ids=str)
async def test_another_request_is_sent(changes: dict[str, Any], tmp_path: Path) -> None:
    async with loopback(says("first"), says("second")) as server:
        engine = await engine_of(server, tmp_path)
        texts = [text_of(await read(engine, sampling)) for sampling in (SEEDED, replace(SEEDED, **changes), SEEDED)]
        await engine.aclose()
    assert texts == ["first ", "second ", "first "]


async def test_another_prompt_and_another_server_are_asked(tmp_path: Path) -> None:
    async with loopback(says("first"), says("second")) as server, loopback(says("third")) as elsewhere:
        engine, other = await engine_of(server, tmp_path), await engine_of(elsewhere, tmp_path)
        texts = [text_of(await read(engine)), text_of(await read(engine, text="Another.")), text_of(await read(other))]
        await engine.aclose()
        await other.aclose()
    assert texts == ["first ", "second ", "third "]


async def test_only_a_request_with_one_answer_is_stored(tmp_path: Path) -> None:
    async with loopback(*[says("one")] * 3) as server:
        engine = await engine_of(server, tmp_path)
        for sampling in (Sampling(50), Sampling(50), Sampling(50, temperature=0.0), Sampling(50, temperature=0.0)):
            await read(engine, sampling)
        await engine.aclose()
    assert len(server.exchanges) == 3 and len(list(tmp_path.rglob("*.json"))) == 1


@pytest.mark.parametrize("play", [dies("one two"), says("one", finish=None), sends(logged("a"), "{")])
async def test_half_an_answer_is_not_stored(play: Play, tmp_path: Path) -> None:
    async with loopback(play, says("whole")) as server:
        engine = await engine_of(server, tmp_path)
        with pytest.raises(EngineError):
            await read(engine)
        assert text_of(await read(engine)) == "whole "
        await engine.aclose()


async def test_an_answer_that_was_left_is_not_stored_unless_it_was_whole(tmp_path: Path) -> None:
    async with loopback(babbles(), says("so x y")) as server:
        engine = await engine_of(server, tmp_path)
        async with aclosing(engine.stream(asked(engine), SEEDED)) as chunks:
            await anext(chunks)
        assert not list(tmp_path.rglob("*.json"))
        async with aclosing(engine.stream(asked(engine), replace(SEEDED, stop=("x",)))) as chunks:
            while (await anext(chunks)).finish is None:
                pass
        again = await read(engine, replace(SEEDED, stop=("x",)))
        await engine.aclose()
    assert (text_of(again), again[-1].finish) == ("so x", FinishReason.STOP)


DAMAGED = [
    b"",
    b"{",
    b"[]",
    b'[{"pieces": ["a"]}]',
    b'[{"pieces": ["a"], "finish": "stop"}, {"pieces": ["b"], "finish": "eos"}]',
    b'[{"pieces": "ab", "finish": "why"}]',
    b"\xff\xfe",
]


@pytest.mark.parametrize("content", DAMAGED)
async def test_a_file_that_is_no_answer_is_replaced(content: bytes, tmp_path: Path) -> None:
    async with loopback(says("first"), says("second")) as server:
        engine = await engine_of(server, tmp_path)
        await read(engine)
        (file,) = tmp_path.rglob("*.json")
        file.write_bytes(content)
        assert [text_of(await read(engine)) for _ in range(2)] == ["second ", "second "]
        await engine.aclose()
    assert len(server.exchanges) == 2


async def test_a_folder_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    (tmp_path / "answers").write_text("a file")
    async with loopback(says("first"), says("second")) as server:
        engine = await engine_of(server, tmp_path / "answers")
        assert [text_of(await read(engine)) for _ in range(2)] == ["first ", "second "]
        await engine.aclose()


async def test_a_key_that_a_server_repeats_is_not_stored(tmp_path: Path) -> None:
    key = "sk-very-secret-of-mine"
    async with loopback(says(f"your key is {key} indeed")) as server:
        server.key = key
        engine = await engine_of(server, tmp_path, api_key=key)
        await read(engine)
        await engine.aclose()
    assert not list(tmp_path.rglob("*.json"))


async def test_an_evaluation_that_is_repeated_sends_nothing(tmp_path: Path) -> None:
    async with loopback(*[says("so <ANSWER> 3 </ANSWER>")] * 3) as server:
        spec = EngineSpec(MODEL, server.url, cache=str(tmp_path / "answers"))
        how = {"model": spec, "n": 3, "prompts": TERSE, "max_tokens": 50, "prices": {MODEL: Price(1.0, 1.0)}}
        runs = [await aevaluate(TASK_OF_THREE, ["sequential"], out=tmp_path / name, **how) for name in ("one", "two")]
    assert len(server.exchanges) == 3
    first, second = ([(e.id, e.answer, e.root.text, e.root.steps) for e in run.episodes] for run in runs)
    assert first == second
    dollars = [run.summary["sequential"]["dollars_total"] for run in runs]
    assert dollars[0] > 0 == dollars[1]


def test_a_model_of_this_process_has_no_answers_of_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "q", "--model", str(tmp_path), "--cache", str(tmp_path)]) == 2
    assert "--cache" in capsys.readouterr().err
