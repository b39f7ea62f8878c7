"""A prompt style of few words for tests: roles by name, questions as they are, and verdicts in one line.

Its name is a path, so whoever reads a run folder finds it, other processes too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orgthink.grammar.verdict import VerdictForm
from orgthink.organizations.prompts import Style

REVIEW = "{question} solution {solution}"

STYLE = Style(
    "terse",
    {
        "sequential": "sequential {question}",
        "organizer": "organizer {capacity} {question}",
        "worker": "worker {question} subtask {query}",
        "organizer_tools": "caller {capacity} {question}",
        "worker_tools": "worker {question} {using} subtask {query}",
        "forking": "",
        "using": "tools",
        "calling": "",
        "solver": "sequential {question}",
        "verifier": f"verifier {REVIEW}",
        "corrector": f"corrector {REVIEW} report {{report}}",
        "feedback": f"verifier {REVIEW}",
        "refine": f"corrector {REVIEW} report {{report}}",
        "manager": "manager {calls} left {rounds} {models} ; {question}",
        "rounds": "left {rounds}",
        "final": "final",
        "summarizer": "summary of {history} ; {question}",
        "standard_reasoner": "sequential {question}",
        "critical_reviewer": "reviewer {question} answers {answers}",
        "knowledge_searcher": "finder {question}",
        "code_reasoner": "coder {question}",
        "scorer": f"scorer {REVIEW}",
        "synthesis": "synthesis {question} {messages}",
        "orchestrator": "orchestrator left {left} {models} ; {question} {documents} {code} {attempts}",
        "orchestrator_final": "orchestrator {question} {attempts} final",
    },
    VerdictForm("correctness", ("correct",), ("wrong",), lines=False),
)

TERSE = f"{Path(__file__).resolve()}:STYLE"
"""Names the style wherever a style is named."""

WHOLE_STYLE = Style(
    "whole",
    {
        **STYLE.templates,
        "rigorous_solver": "sequential {question}",
        "rigorous_corrector": f"corrector {REVIEW} report {{report}}",
        "improve": f"sequential {REVIEW}",
        "review": f"verifier {REVIEW} report {{report}}",
        "completeness": "complete {solution}",
    },
    STYLE.verdicts,
)

WHOLE = f"{Path(__file__).resolve()}:WHOLE_STYLE"
"""The same with the parts of Huang and Yang's pipeline."""

PATHS_STYLE = Style("paths", {"sequential": "paths {question}"})

PATHS = f"{Path(__file__).resolve()}:PATHS_STYLE"
"""The style of a model that thinks in parallel paths, where others are asked in `TERSE`."""

EXTENDED_STYLE = replace(
    STYLE,
    templates=STYLE.templates
    | {
        "organizer": "organizer {capacity} {inherit} {push} {persistent} {question}",
        **{"inherit": "inherits", "push": "pushes", "persistent": "tells", "isolated": "alone"},
        **{"delegate": "", "alone": "", "inherited": "worker subtask {query}", "follow_up": "worker subtask {query}"},
    },
)

EXTENDED = f"{Path(__file__).resolve()}:EXTENDED_STYLE"
"""The style of AsyncThink's settings beyond the paper."""
