"""Answers on disk that somebody else wrote, and what must not get there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within
from attacks.hostile import ATTACKED, FINE, evaluated, planned
from loopback import MODEL, Exchange, loopback, says

from orgthink.engines.endpoint.cache import NOTHING, AnswerCache, least_sent
from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.engines.engine import Chunk, Context, FinishReason
from orgthink.record.episode import Episode, Message, Sampling, StopReason
from orgthink.util import redaction

CHECKED = "A stored answer is checked as a server's is; one that does not fit is none."
AGAIN = "the server is asked again"
LAST: dict[str, Any] = {"pieces": ["so ", "<ANSWER> ", "9 ", "</ANSWER>"], "finish": "eos"}


class Forged(AnswerCache):
    """Somebody else was there first."""

    def __init__(self, folder: Path, content: str) -> None:
        super().__init__(folder)
        self._content = content

    def place(self, request: Any) -> Path:
        place = super().place(request)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(self._content)
        return place


async def with_cache(path: Path, cache: AnswerCache, *plays: Any) -> dict[str, Episode]:
    what = replace(planned(), sampling=Sampling(50, temperature=0))
    return await evaluated(path / "run", *plays, what=what, cache=cache)


def forged(does: str, *chunks: dict[str, Any]) -> Attack:
    return Attack(does, CHECKED, AGAIN, json.dumps(chunks or [LAST]))


@each(
    forged("a stored text that no fifty tokens have", {"pieces": ["x" * 20_000]}, LAST),
    forged("stored thoughts that no fifty tokens have", {"pieces": ["a"], "reasoning": "x" * 20_000}, LAST),
    forged("a stored answer of five tokens with a thousand words", {"pieces": ["word " * 1_000]}, LAST),
    forged(
        "a stored answer of five tokens with a thousand words of thoughts",
        {"pieces": [""], "reasoning": "hm " * 1_000},
        LAST,
    ),
    forged("a stored answer of five tokens with a word of five thousand letters", {"pieces": ["a" * 5_000]}, LAST),
    forged("a stored log-probability of NaN", LAST | {"logprobs": [float("nan")] * 4}),
    forged("a stored log-probability of infinity", LAST | {"logprobs": [float("inf")] * 4}),
    forged("a stored log-probability of −10³⁰⁰", LAST | {"logprobs": [-1e300] * 4}),
    forged("a stored log-probability of 50", LAST | {"logprobs": [50.0] * 4}),
    forged("a stored token id of −5", LAST | {"token_ids": [-5] * 4}),
    forged("a stored token id of 10³⁰", LAST | {"token_ids": [10**30] * 4}),
    forged("a stored count of −7", LAST | {"tokens": -7}),
    forged("a stored count of 10³⁰", LAST | {"tokens": 10**30}),
    forged("a stored count of tokens before the end", {"pieces": ["a"], "tokens": 10**9}, LAST),
    forged("a stored count that is a text", LAST | {"tokens": "7"}),
    forged("stored ids and log-probabilities that are texts", LAST | {"token_ids": ["5"] * 4, "logprobs": ["-1"] * 4}),
    forged("a stored answer of 2,000 parts without a token", *[{"pieces": []}] * 2_000, LAST),
    forged("a stored answer of 300 KB for fifty tokens", LAST | {"policy_version": "v" * 300_000}),
    Attack("a stored answer nested 100,000 deep", CHECKED, AGAIN, "[" * 100_000),
)
async def test_a_stored_answer(attack: Attack, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    episodes = await with_cache(tmp_path, Forged(tmp_path / "cache", attack.given), *[FINE] * 3)
    assert [(each.stop, each.answer) for each in episodes.values()] == [(StopReason.DONE, "3")] * 3
    lines = [record.getMessage() for record in caplog.records if "holds no answer" in record.getMessage()]
    assert len(lines) == 3 and not any("\n" in line for line in lines)
    assert not any("ANSWER" in line for line in lines), "nothing of the file is quoted"


@each(
    forged("a stored answer that says what it cost", LAST | {"billed": {"input": 10**30, "output": -5}}),
    forged("a stored answer that names a policy", LAST | {"policy_version": "\x1b[2J" * 1_000}),
)
async def test_what_a_stored_answer_does_not_say(attack: Attack, tmp_path: Path) -> None:
    episodes = await with_cache(tmp_path, Forged(tmp_path / "cache", attack.given))
    spans = [span for episode in episodes.values() for span in episode.root.spans if span.origin.own]
    assert [(span.billed, span.policy_version) for span in spans] == [(NOTHING, None)] * 3


APART = (
    "A stored answer is found by who asked which deployment, too: by the query and the login of the URL, and the key."
)


@each(
    Attack(
        "two deployments of a server, by the query of its URL", APART, "both are asked", (("", "?d=a"), ("", "?d=b"))
    ),
    Attack("two users of a server, by its login", APART, "both are asked", (("a:pass@", ""), ("b:pass@", ""))),
    Attack("two passwords for a server", APART, "both are asked", (("a:pass@", ""), ("a:word@", ""))),
    Attack("two keys for a server", APART, "both are asked", (("", "", "key-a"), ("", "", "key-b"))),
)
async def test_another_deployment_or_user(attack: Attack, tmp_path: Path) -> None:
    async with loopback(says("first"), says("second")) as server:
        found = []
        for login, query, *key in (*attack.given, *attack.given):
            url = server.url.replace("//", f"//{login}") + query
            engine = await EndpointEngine.open(url, MODEL, api_key=(*key, None)[0], cache=AnswerCache(tmp_path))
            messages = (Message("user", "Hi"),)
            context = Context(messages, [engine.prompt(messages)])
            chunks = [chunk async for chunk in engine.stream(context, Sampling(50, temperature=0))]
            found.append("".join(piece for chunk in chunks for piece in chunk.pieces))
            await engine.aclose()
    assert found == ["first ", "second ", "first ", "second "]
    assert not any("pass" in file.read_text() or "key-" in file.read_text() for file in tmp_path.rglob("*.json"))


@each(Attack("a key that a server says in pieces", "No stored answer holds a key.", "it is not stored"))
async def test_a_key_in_pieces(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_forms", ())
    redaction.conceal("sk-secret-of-mine-42")

    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        for word in ("it is ", "sk-secr", "et-of-m", "ine-42", " <ANSWER> 3 </ANSWER>"):
            await exchange.say(word)
        await exchange.say("", "stop")
        await exchange.end()

    await with_cache(tmp_path, AnswerCache(tmp_path / "cache"), (ATTACKED, play), *[FINE] * 2)
    stored = [file.read_text() for file in (tmp_path / "cache").rglob("*.json")]
    assert len(stored) == 2 and not any("et-of-m" in text for text in stored)


@each(
    Attack("a folder of answers holds a link to another folder", "Nothing is written through a link that somebody put "
           "into a folder of answers.", "the answer is not stored, with a line", None),
)  # fmt: skip
def test_a_link_among_answers(attack: Attack, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache, elsewhere = AnswerCache(tmp_path / "cache"), tmp_path / "elsewhere"
    place = cache.place(["a request"])
    elsewhere.mkdir()
    place.parent.parent.mkdir()
    place.parent.symlink_to(elsewhere)
    cache.store(place, [Chunk(("a",), finish=FinishReason.EOS)])
    assert list(elsewhere.iterdir()) == [] and "is not stored" in caplog.text


LINEAR = "A stored answer is read in time linear in its length."


@each(
    Attack("a stored answer of 300,000 calls that never close", LINEAR, AGAIN, "<tool_call>" * 300_000),
    Attack("a stored answer of 300,000 calls in one", LINEAR, AGAIN, "<tool_call>" * 300_000 + "</tool_call>"),
    Attack("a stored answer of 100,000 calls", LINEAR, AGAIN, "<tool_call></tool_call>" * 100_000),
)
def test_a_stored_answer_of_tags(attack: Attack) -> None:
    assert attack.given.startswith(within(30, lambda: least_sent(attack.given)))
