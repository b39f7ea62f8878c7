"""`gym:NAME`: the procedural tasks of reasoning-gym. `gym:mini_sudoku?min_empty=8` has a setting of its own.

A process of its own makes the problems and scores the answers (`gym_process.py`). Only score 1.0 is right.
Half of the problems, by a hash of the question, are held out for `test`, whatever the settings are.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from typing import Any

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import Solution, Split, Task, member_name, read_member
from orgthink.util.errors import UserError, pick
from orgthink.util.install import pip_install
from orgthink.util.isolated import IsolatedProcess, ProcessEnded
from orgthink_arena.tasks.gym_process import MAKING

LONGEST = 100_000
"""Characters of the longest answer that is scored."""
_STARTS = 1 << 22
"""Places in the endless row of problems, 500 apart, at one of which a seed starts."""
_MISSES, _SKIPPED = 2000, 100
"""So many problems in a row that are of the other split, or cannot be made, are the end."""
_FILE = re.compile(r"\.\.|.[/\\]|[/\\].")

_NAMES = """
ab acre aiw arc_1d arc_agi base_conversion basic_arithmetic bf binary_alternation caesar_cipher calendar_arithmetic
chain_sum circuit_logic codeio color_cube_rotation count_bits count_primes countdown course_schedule cryptarithm
decimal_arithmetic decimal_chain_sum dice emoji_mystery family_relationships futoshiki gcd group_anagrams
isomorphic_strings jugs kakurasu knight_swap largest_island lcm leg_counting letter_counting list_functions
mahjong_puzzle manipulate_matrix maze mini_sudoku modulo_grid n_queens needle_haystack number_filtering number_format
number_sequence number_sorting palindrome_generation palindrome_partitioning path_star polynomial_equations
pool_matrix power_function prime_factorization products puzzle24 ransom_note rearc rectangle_count rotate_matrix
rotten_oranges self_reference sentence_reordering shortest_path simple_equations simple_geometry spell_backward
string_manipulation string_splitting string_synthesis sudoku survo syllogism tower_of_hanoi tsumego word_ladder
word_sequence_reversal zebra_puzzles
"""
NAMES = tuple(_NAMES.split())
"""Names that are offered: their scorers were reviewed in the version that pyproject.toml pins."""
_RUNS = "its scorer runs the answer as a program"
_LOOSE = "its scorer gives the full score to some wrong answers"
_OPEN = "its problems have no reference answer"
_REFUSED_BY_REASON = {
    _RUNS: "intermediate_integration polynomial_multiplication simple_integration string_insertion spiral_matrix "
    "binary_matrix bitwise_arithmetic",
    _OPEN: "boxnet graph_color propositional_logic rubiks_cube rush_hour",
    _LOOSE: "coin_flip complex_arithmetic figlet_font letter_jumble word_sorting gsm_symbolic fraction_simplification "
    "knights_knaves time_intervals game_of_life game_of_life_halting quantum_lock advanced_geometry",
}
REFUSED = {
    **{name: reason for reason, names in _REFUSED_BY_REASON.items() for name in names.split()},
    "sokoban": "a problem takes more than 30 s",
    "composite": "it is a mixture: join names by +",
}
"""Names that are not offered, and why."""
_ANSWER_FORM = "Where the question shows how an answer looks, write the final answer in exactly that form."

PROCESS = IsolatedProcess("orgthink_arena.tasks.gym_process")


def _ask(job: str, *question: Any) -> dict[str, Any]:
    """What the process answers, empty if the question took too long. UserError for settings that cannot be, ToolError
    if the process does not start, ProcessEnded if the question ended it otherwise."""
    found = PROCESS.ask([job, *question]) or {}
    if "error" in found:
        raise UserError(found["error"])
    return found


@cache
def _version() -> str:
    try:
        return version("reasoning-gym")
    except PackageNotFoundError:
        raise UserError(f"tasks of reasoning-gym need it: {pip_install('gym')}") from None


class Gym(Task):
    """One name of reasoning-gym with settings."""

    def __init__(self, text: str) -> None:
        """`NAME` or `NAME?SETTING=VALUE&SETTING=VALUE`. UserError for a name that is unknown or refused."""
        self.dataset, self.settings = read_member("gym", text)
        """Name in reasoning-gym, and settings that differ from its own."""
        if self.dataset in REFUSED:
            raise UserError(f"gym:{self.dataset} is not offered: {REFUSED[self.dataset]}")
        if self.dataset == "*":
            raise UserError("gym:* is all of them: name one; `orgthink list gym` shows what there is")
        pick("task of reasoning-gym", self.dataset, dict.fromkeys(NAMES))
        if self.dataset == "basic_arithmetic" and not self.settings.get("allow_parentheses", True):
            raise UserError(f"gym:{text} is not offered: without parentheses its reference answers are wrong")
        if any(_FILE.search(word) for word in _words(self.settings)):
            raise UserError(f"gym:{text}: a setting may not name a file")
        self.name = member_name("gym", self.dataset, self.settings)

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """Problems from a place on that the seed decides. UserError for settings that cannot be, and if none come."""
        start = random.Random(f"{self.name} {split} {seed}").randrange(_STARTS) * 500
        missed = skipped = 0
        for number in count(start):
            made = _ask("make", self.dataset, self.settings, number)
            if not made:
                raise UserError(f"a problem of {self.name} takes more than {MAKING} s; choose easier settings")
            missed, skipped = missed + 1, skipped + 1 if "skipped" in made else 0
            if missed == _MISSES or skipped == _SKIPPED:
                raise UserError(f"{self.name} has no {split} problems; {made.get('skipped', 'it has very few')}")
            if not skipped:
                problem = self._problem(number, made["question"], made["answer"])
                if _is_held_out(made["question"]) == (split == "test"):
                    missed = 0
                    yield problem

    def _problem(self, number: int, question: str, answer: str) -> Problem:
        return Problem(
            id=f"gym/{self.dataset}/{_digest(question)}",
            task=self.name,
            text=f"{question}\n\n{_ANSWER_FORM}",
            data={"answer": answer, "number": number, "reasoning_gym": _version()},
            answer_form=_ANSWER_FORM,
        )

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 at score 1.0, else 0; an answer whose scorer fails or takes too long is wrong.

        UserError if the installed reasoning-gym makes another problem than the one that was asked. ToolError if it does
        not start: the answer can be graded later.
        """
        number = problem.data.get("number")
        if not isinstance(number, int) or not 0 <= number < 1 << 32:
            raise UserError(f"{problem.id} has no number in reasoning-gym")
        if len(answer) > LONGEST:
            return Grade(0, problem.required)
        try:
            found = _ask("grade", self.dataset, self.settings, number, answer)
        except ProcessEnded:  # an answer that kills its scorer
            found = {}
        if found and not problem.id.endswith(_digest(found["question"])):
            made, here = problem.data.get("reasoning_gym"), _version()
            raise UserError(f"{problem.id} was made by reasoning-gym {made}; {here} makes another problem")
        return Grade(int(found.get("right", False)), problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        """One solution; white space makes no difference."""
        text = answer.strip()
        return [Solution(" ".join(text.split()), text)] if text else []


def _digest(question: str) -> str:
    return _hash(question)[:12]


def _is_held_out(question: str) -> bool:
    """By what the id does not hold, so that a part of the training problems is any of them."""
    return int(_hash(question)[12], 16) % 2 == 0


def _hash(question: str) -> str:
    return hashlib.sha256(question.encode("utf-8", "replace")).hexdigest()


def _words(value: Any) -> Iterator[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _words(one)


class GymTasks:
    """`gym:NAME`."""

    def __call__(self, text: str) -> Gym:
        return Gym(text)

    def lines(self, text: str) -> Iterator[str]:
        """Of one name its settings and a problem; of none or `*` a line for each name, then those that are refused."""
        if text not in ("", "*"):
            task = Gym(text)
            yield from _described(task.name, _ask("describe", task.dataset, task.settings))
            return
        yield from (f"gym:{name}" for name in NAMES)
        for name, why in REFUSED.items():
            yield f"gym:{name:<24} not offered: {why}"


def _described(name: str, found: dict[str, Any]) -> Iterator[str]:
    yield name
    yield from (f"  {setting}  {value}" for setting, value in found["settings"].items())
    yield f"\n{found['question']}\n\n{found['answer']}"


GYM = GymTasks()
"""Tasks of reasoning-gym: `gym:NAME`, with settings as in `gym:mini_sudoku?min_empty=8`."""
