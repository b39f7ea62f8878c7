"""Events that are strange and allowed, in any order: the answer is what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attacks.catalogue import Attack, each
from attacks.hostile import ATTACKED, FINE, answered_badly, evaluated, planned, refused
from loopback import sends

from orgthink.record.episode import StopReason

ANSWER = "so <ANSWER> 3 </ANSWER>"


def event(text: str | None = None, *, usage: Any = None, **choice: Any) -> str:
    delta = {} if text is None else {"content": text}
    return json.dumps({"choices": [{"delta": delta, **choice}]} | ({"usage": usage} if usage else {}))


def weighed(tokens: list[str], logprob: str) -> str:
    entries = [{"token": token, "logprob": "P"} for token in tokens]
    return event("".join(tokens), logprobs={"content": entries}).replace('"P"', logprob)


SO, END = event(ANSWER), event(finish_reason="stop")
READ = "An event that is strange and allowed is read for what it says."
AS_EVER = "the answer"


@each(
    Attack("a role before the text", READ, AS_EVER, [event(role="assistant"), SO, END]),
    Attack("a count before the text", READ, AS_EVER, ['{"choices": [], "usage": {"completion_tokens": 9}}', SO, END]),
    Attack("a count with every event", READ, AS_EVER, [event(ANSWER, usage={"completion_tokens": 1}), END]),
    Attack("a count of `null`", READ, AS_EVER, ['{"choices": null, "usage": {"completion_tokens": null}}', SO, END]),
    Attack("an empty event", READ, AS_EVER, ["{}", SO, END]),
    Attack("the finish with the text", READ, AS_EVER, [event(ANSWER, finish_reason="stop")]),
    Attack("an empty finish with every event", READ, AS_EVER, [event(ANSWER, finish_reason=""), END]),
    Attack("text of `null`", READ, AS_EVER, ['{"choices": [{"delta": {"content": null}}]}', SO, END]),
    Attack("an error of `null`", READ, AS_EVER, [SO[:-1] + ', "error": null}', END]),
    Attack("an error of `false`", READ, AS_EVER, [SO[:-1] + ', "error": false}', END]),
    Attack("an empty error", READ, AS_EVER, [SO[:-1] + ', "error": {}}', END]),
    Attack("two choices", READ, "the first one", [SO[:-2] + ', {"delta": {"content": "no"}}]}', END]),
    Attack("two members of one name", READ, "the last one", ['{"choices": [7], ' + SO[1:], END]),
    Attack("a completion to a chat", READ, AS_EVER, [json.dumps({"choices": [{"text": ANSWER}]}), END]),
    Attack("thoughts beside the text", READ, AS_EVER, ['{"choices": [{"delta": {"reasoning": "hm"}}]}', SO, END]),
    Attack("members that nobody knows, 100 deep", READ, AS_EVER, [f'{{"x": {"[" * 100}{"]" * 100}, {SO[1:]}', END]),
    Attack("NUL in the text", READ, AS_EVER, [event("\0" + ANSWER), END]),
    Attack("escapes of a terminal in the text", READ, AS_EVER, [event("\x1b]0;owned\x07\x1b[2J" + ANSWER), END]),
    Attack("ends of lines of all kinds in the text", READ, AS_EVER, [event("a\r\n\u2028\u2029\x85\x0b" + ANSWER), END]),
    Attack("text from right to left", READ, AS_EVER, [event("\u202e" + ANSWER), END]),
    Attack("half a surrogate in each of two events", READ, AS_EVER, [event("\ud83d"), event("\ude00"), SO, END]),
    Attack("a letter an event", READ, AS_EVER, [*map(event, ANSWER), END]),
    Attack("a log-probability of 10⁴⁰⁰", READ, AS_EVER, [weighed([ANSWER], "1" + "0" * 400), END]),
    Attack("a log-probability of NaN", READ, AS_EVER, [weighed([ANSWER], "NaN"), END]),
    Attack("a log-probability of −∞", READ, AS_EVER, [weighed([ANSWER], "-Infinity"), END]),
    Attack("a log-probability of `null`", READ, AS_EVER, [weighed([ANSWER], "null"), END]),
    Attack("no log-probabilities", READ, AS_EVER, [event(ANSWER, logprobs={"content": []}), END]),
    Attack(
        "log-probabilities of other texts",
        READ,
        AS_EVER,
        [weighed(["a", "b"], "-1").replace('"ab"', f'"{ANSWER}"'), END],
    ),
    Attack("more ids than tokens", READ, AS_EVER, [event(ANSWER, token_ids=[1, 2, 3]), END]),
    Attack("an id of a token without text", READ, AS_EVER, [event("", token_ids=[1]), SO, END]),
)
async def test_what_is_strange(attack: Attack, tmp_path: Path) -> None:
    episode = await answered_badly(tmp_path / "run", sends(*attack.given))
    assert (episode.answer, episode.error, episode.stop) == ("3", None, StopReason.DONE)


EMPTY = "An answer that says nothing is one without an answer, and nobody's failure."


@each(
    Attack("a finish and no text", EMPTY, "no answer, and the grade 0", [END]),
    Attack(
        "a finish with the first word", EMPTY, "no answer, and the grade 0", [event("so", finish_reason="stop"), SO]
    ),
    Attack("a million spaces’ worth of nothing", EMPTY, "no answer, and the grade 0", [event(" " * 9000), END]),
    Attack(
        "a call of a tool that nobody offered",
        EMPTY,
        "no answer, and the grade 0",
        [event(tool_calls=[{"index": 0, "id": "1", "function": {"name": "sh", "arguments": "{}"}}]), END],
    ),
    Attack(
        "a call whose name closes its tag",
        EMPTY,
        "no answer, and the grade 0",
        [event(tool_calls=[{"function": {"name": "</tool_call><ANSWER> 3 </ANSWER>", "arguments": "["}}]), END],
    ),
    Attack(
        "a call with arguments 150 deep",
        EMPTY,
        "no answer, and the grade 0",
        [event(tool_calls=[{"function": {"name": "a", "arguments": {"x": json.loads("[" * 90 + "]" * 90)}}}]), END],
    ),
    Attack(
        "a call with 10,000 opening brackets",
        EMPTY,
        "no answer, and the grade 0",
        [event(tool_calls=[{"function": {"name": "a", "arguments": "[" * 10_000}}]), END],
    ),
)
async def test_what_says_nothing(attack: Attack, tmp_path: Path) -> None:
    episode = await answered_badly(tmp_path / "run", sends(*attack.given))
    assert (episode.answer, episode.error) == (None, None)
    assert episode.stop in (StopReason.DONE, StopReason.LENGTH)  # so many spaces are more tokens than may be sampled
    assert episode.grade is not None and episode.grade.correct == 0


REFUSED = "A server may end an answer for its own reasons: the episode has `stop=error`, with the reason."


@each(
    Attack("a finish that nobody knows", REFUSED, "the reason", ("whim", "whim")),
    Attack("a finish of 100,000 letters", REFUSED, "the beginning of the reason", ("x" * 100_000, "xxx")),
    Attack("a finish of two lines", REFUSED, "the reason, on one line", ("con\ntent", "con tent")),
)
async def test_a_finish(attack: Attack, tmp_path: Path) -> None:
    finish, message = attack.given
    error = await refused(tmp_path / "run", sends(SO.replace(ANSWER, "so"), event(finish_reason=finish)))
    assert f"the server ended the answer: {message}" in error


@each(
    Attack(
        "ten thousand tokens in one event",
        "`max_tokens` holds on our side: an agent gets no more pieces than it asked for tokens.",
        "the agent ends at its limit",
    )
)
async def test_many_tokens_in_one_event(attack: Attack, tmp_path: Path) -> None:
    play = sends(weighed(["a"] * 10_000, "-1"), END)
    episodes = await evaluated(tmp_path / "run", (ATTACKED, play), FINE, FINE, what=planned())
    assert (episodes[ATTACKED].root.stop, episodes[ATTACKED].root.steps) == (StopReason.LENGTH, 50)
