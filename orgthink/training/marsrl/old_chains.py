"""Reads the chains of older checkpoints, which were no episodes yet (up to commit a46cad4).

They held only the groups of the current stage and the text of their inputs. The outputs from which these were made are
rebuilt without tokens: later stages depend on nothing but their visible text. Times were seconds since 1970 and are
left out.
"""

from __future__ import annotations

from typing import Any

from orgthink.grammar.solution import after_thinking
from orgthink.grammar.verdict import VerdictForm
from orgthink.record.episode import CONTROLLER
from orgthink.training.marsrl.rollout import STREAMS, role_of

Json = dict[str, Any]


def as_episodes(data: Any, form: VerdictForm) -> Any:
    """The JSON values of today's form; values of another form are returned as they are."""
    try:
        old = any("groups" in chain for chain in data["chains"])
        return {**data, "chains": [_episode(chain, form) for chain in data["chains"]]} if old else data
    except (KeyError, TypeError, AttributeError, IndexError):
        return data  # validation says what is wrong with it


def _episode(chain: Json, form: VerdictForm) -> Json:
    outputs: dict[str, Json] = {}
    for number, group in enumerate(chain["groups"]):
        source = ".".join([str(number), *["0"] * (chain["stage"] - 1)]) if chain["stage"] else ""
        outputs.update(_sources(group["asked"], source, form))
        outputs.update((f"{source}.{i}" if source else str(i), _output(m)) for i, m in enumerate(group["members"]))
    root = {"agent": CONTROLLER, "role": CONTROLLER, "parent": None, "spans": []}
    traces = [
        {**outputs[place], "agent": f"{CONTROLLER}/{place}", "parent": CONTROLLER, "start": 0.0, "end": 0.0}
        for place in sorted(outputs, key=lambda place: place.count("."))
    ]
    return {
        "id": f"{chain['problem']['id']}|marsrl|{chain['number']}",
        "problem": chain["problem"],
        "organization": "marsrl",
        "capacity": len(outputs),
        "traces": [root, *traces],
        "sample": chain["number"],
    }


def _output(member: Json) -> Json:
    """The trace of a member."""
    trace, ended = member["trace"], member["trace"]["stop"] == "done"
    text = "".join(span["text"] for span in trace["spans"] if span["origin"] != "prompt")
    returned = after_thinking(text, ended) or None
    over = trace["stop"] == "length" and member["finished"]
    return trace | {
        "spans": [span | {"start": None, "end": None} for span in trace["spans"]],
        "returned": returned,
        "status": "no_return" if ended and returned is None else trace["status"],
        "stop": "budget" if over else trace["stop"],
    }


def _sources(group_input: Json, source: str, form: VerdictForm) -> dict[str, Json]:
    """The outputs from which an input was made, by place."""
    if not source:
        return {}
    if role_of(group_input["stream"]) == "verifier":
        return {source: _text_alone(source, group_input["solution"])}
    report = f"{group_input['report']}\n{form.field}: {form.wrong[0]}"
    solved = source.rpartition(".")[0]
    return {solved: _text_alone(solved, group_input["solution"]), source: _text_alone(source, report)}


def _text_alone(place: str, text: str) -> Json:
    prompt = {"origin": "prompt", "text": "", "tokens": 0, "token_ids": []}
    return {"role": role_of(STREAMS[place.count(".")]), "spans": [prompt], "returned": text}
