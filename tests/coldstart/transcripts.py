"""Transcripts as a good teacher writes them, for any plan."""

from __future__ import annotations

import re

from orgthink.training.coldstart.structures import Step


def transcript(plan: list[Step], answer: str = "1", word: str = "thought") -> str:
    """A transcript that follows the plan; `word` goes into everything that is said."""
    said, workers = [f"{word} about fragments"] if plan[0].action == "think" else [], []
    for step in plan:
        query, returned = f"{word} query {step.key}", f"{word} found {step.key}"
        match step.action:
            case "think":
                said.append(f"{word} of my own")
            case "fork":
                said.append(f"<FORK-{step.key}>{query}</FORK-{step.key}>")
                workers += [f"=== SUBTASK {step.key} ===", query, f"=== WORKER {step.key} ==="]
                workers.append(f"{word} by worker {step.key} <RETURN>{returned}</RETURN>")
            case "join":
                said.append(f"<JOIN-{step.key}> {returned} </JOIN-{step.key}>")
    said.append(f"<ANSWER>{answer}</ANSWER>")
    parts = ["=== FRAGMENTS ===", f"{word} apart", "=== ORGANIZER ===", " ".join(said), *workers]
    return "\n".join(parts) + "\n"


def planned(words: str) -> list[Step]:
    """The plan in words such as `FORK-1, THINK, JOIN-1, ANSWER`."""
    steps = [word.partition("-") for word in words.split(", ")]
    assert steps.pop()[0] == "ANSWER"
    return [Step(action.lower(), key) for action, _, key in steps]


def asked_for(context: str) -> list[Step]:
    """The plan that a teacher's prompt asks for: the last one in it."""
    return planned(re.findall(r"^Action sequence: (.*)$", context, re.MULTILINE)[-1])
