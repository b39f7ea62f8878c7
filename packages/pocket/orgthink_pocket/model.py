"""The pocket model: vocabulary, architecture, and the stream of its lessons.

A model of the Qwen3 architecture with about a million parameters, in the layout of Hugging Face, so that every engine
opens it. Every integer up to 399, every tag and every word is one token.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from orgthink.grammar.actions import Answer
from orgthink.grammar.asyncthink import DIALECT
from orgthink.models.qwen3 import Qwen3Config
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Origin, Problem, Trace
from orgthink.tasks import TASKS
from orgthink_pocket.lessons import asyncthink as cold_start
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI
from orgthink_pocket.teachers import arithmetic, countdown, sudoku

PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"
KEYS = range(1, 9)
SYMBOLS = ("+", "-", "*", "/", "(", ")", "=", ";", ".", ",", ":", "!", "?")
ROLES = ("sequential", "organizer", "worker", "subtask", "solver", "verifier", "corrector", "manager")
TASK_WORDS = ("countdown", "sudoku", "arithmetic", "none", "correct", "wrong")
REVIEW_WORDS = ("</think>", "solution", "report", "finding", "correctness", "check", "ok", "bad")
"""Words of verifiers and correctors, in the first reserved places."""
RESERVED = 32
"""Number of places for words that were added after the first lessons, or will be."""
LARGEST_INTEGER = 399


def vocabulary() -> list[str]:
    """All tokens in the order of their ids."""
    keyed = [tag.format(key) for tag in (*DIALECT.fork, DIALECT.join, DIALECT.joined[1]) for key in KEYS]
    tags = [*keyed, *DIALECT.answer, *DIALECT.returns]
    words = [*ROLES, *TASK_WORDS, *countdown.WORDS, *sudoku.WORDS, *arithmetic.WORDS]
    reserved = [*REVIEW_WORDS, *(f"<reserved-{i}>" for i in range(len(REVIEW_WORDS), RESERVED))]
    integers = [str(i) for i in range(LARGEST_INTEGER + 1)]
    return list(dict.fromkeys([PAD, EOS, UNK, *SYMBOLS, *tags, *words, *reserved, *integers]))


def build_tokenizer(words: Sequence[str]) -> Tokenizer:
    """One token per word. The text of a token starts with its space, so texts concatenate like tokens."""
    special = (PAD, EOS, UNK)
    ids = {word if word in special else f"▁{word}": i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNK))
    pattern = Regex(r"</?[A-Za-z]+(?:-\d+)?>|\d+|[a-z]+|[^\s]")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "removed", invert=True),
            pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=False),
        ]
    )
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="never")
    tokenizer.add_special_tokens(list(special))
    return tokenizer


CONFIG = Qwen3Config(
    vocab_size=len(vocabulary()),
    hidden_size=128,
    intermediate_size=384,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    max_position_embeddings=1024,
)
"""Head size 32 is the smallest that vLLM decodes."""


def sized(hidden: int, layers: int) -> Qwen3Config:
    """The architecture in another width and depth. ValueError unless heads of this size fit the width in pairs."""
    groups, rest = divmod(hidden, 2 * CONFIG.head_dim)
    if groups < 1 or rest or layers < 1:
        raise ValueError(f"hidden is {hidden}, layers {layers}: a multiple of {2 * CONFIG.head_dim}, and at least 1")
    heads = {"num_attention_heads": 2 * groups, "num_key_value_heads": groups}
    return replace(CONFIG, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers, **heads)


ORGANIZING: dict[str, dict[str, Any]] = {
    "asyncthink": {"malformed": "error"},
    "verifier-corrector": {"passes": 1, "rounds": 10, "attempts": 1},
}
"""Settings of organizations with which the models were trained."""

MADE_FOR = {"tasks": ["countdown-mini", "countdown-mini-single"], "organizations": ORGANIZING}
"""Entries of orgthink.json beside the prompt style."""


def write_folder(
    folder: Path,
    config: Qwen3Config = CONFIG,
    tokenizer: Tokenizer | None = None,
    made_for: Mapping[str, object] = MADE_FOR,
) -> None:
    """Write a model folder without the weights. The words of a larger tokenizer must begin with this vocabulary.

    `made_for` are entries of its orgthink.json beside the prompt style.
    """
    folder.mkdir(parents=True, exist_ok=True)
    words = vocabulary()
    (tokenizer or build_tokenizer(words)).save(str(folder / "tokenizer.json"))
    config.save(folder, eos_token_id=words.index(EOS), pad_token_id=words.index(PAD))
    special = {"eos_token": EOS, "pad_token": PAD, "unk_token": UNK}
    _write(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **special})
    _write(folder / "generation_config.json", {"eos_token_id": words.index(EOS), "pad_token_id": words.index(PAD)})
    _write(folder / "orgthink.json", {"prompts": "pocket", **made_for})


def _write(file: Path, content: dict[str, object]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")


CAPACITIES = (2, 3, 4)
"""Pool sizes of organizers' lessons."""


@dataclass(frozen=True, slots=True)
class LessonShares:
    """Kinds of lessons, and how often each is drawn."""

    shares: dict[str, float]
    """Share of each kind of lesson."""
    drilled: tuple[int, int]
    """Smallest and largest integer of the drill `facts`."""
    small: float = 0.0
    """Share of the drill's values in the range of the numbers of a problem."""


FORM = LessonShares({"countdown-mini": 0.66, "facts": 0.1, "arithmetic-mini": 0.13, "sudoku": 0.11}, (1, 75))
"""The first phase teaches the form of the traces."""

DRILL = LessonShares({"countdown-mini": 0.5, "facts": 0.3, "arithmetic-mini": 0.11, "sudoku": 0.09}, (5, 65), small=0.4)
"""The second phase drills arithmetic: most errors left concern integers that were never a target."""

FORM_POOLS = 47
"""Pools of rows before the drill."""


def lessons(seed: int, pool: int, *, forks: bool = True) -> Iterator[list[Trace]]:
    """An endless stream of lessons: the traces of one problem, in one of the roles. The same for the same pool.

    Without `forks` every thinker is a sequential one: the base of the ablation without format fine-tuning.
    """
    rng = random.Random(f"{seed}/{pool}")
    mixture = FORM if pool < FORM_POOLS else DRILL
    problems = {name: TASKS[name].problems("train", rng.randrange(1 << 30)) for name in mixture.shares if name in TASKS}
    teachers = {"sudoku": sudoku.solve, "arithmetic-mini": arithmetic.solve}
    while True:
        (kind,) = rng.choices(list(mixture.shares), list(mixture.shares.values()))
        if kind == "facts":
            target = rng.randint(*mixture.drilled)
            drill = countdown.facts(rng, target, 30, mixture.small)
            spans = [span for value, fact in drill for span in ((value, Origin.INJECTED), (fact, Origin.SAMPLED))]
            yield [cold_start.teacher_trace("thinker", None, f"facts = {target}", spans)]
        elif kind == "countdown-mini":
            yield _countdown(_any_problem(problems[kind], rng), rng, forks)
        else:
            problem = next(problems[kind])
            thinking, answer = teachers[kind](problem.data)
            question = prompt("pocket", "sequential", problem)[0].content
            text = f" {thinking} {DIALECT.render(Answer(f' {answer} '))}"
            yield [cold_start.teacher_trace("thinker", None, question, [(text, Origin.SAMPLED)])]


def _countdown(problem: Problem, rng: random.Random, forks: bool) -> list[Trace]:
    """One role at a problem; an organizer comes with its workers."""
    draw = rng.random()
    if draw < 0.4 or not forks:
        return [cold_start.sequential(problem, rng)]
    if draw < 0.7:
        return cold_start.organizer(problem, rng.choice(CAPACITIES), rng)
    return [cold_start.worker(problem, rng.sample(countdown.OPERATORS, rng.randint(1, 2)))]


def _any_problem(qualifying: Iterator[Problem], rng: random.Random) -> Problem:
    """Half of the problems have enough solutions, the others may have fewer."""
    task = COUNTDOWN_MINI
    while rng.random() < 0.5:
        numbers = sorted(rng.sample(range(1, task.size.largest + 1), task.size.given))
        target = rng.randint(*task.size.targets)
        if target not in numbers and target not in task.test_targets:
            return task.problem(numbers, target)
    return next(qualifying)
