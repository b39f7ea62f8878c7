"""TRL's `GRPOTrainer` on single-trace rows: `make trl`, then `.venv-trl/bin/python -m benchmarks.trl_grpo`.

It needs its own environment and runs in the root of the repository. The shipped pocket model answers `sequential`
prompts of countdown-mini, the task grades the answers, and TRL trains the model. The first step is a warm-up. TRL uses
the settings that are fastest here: single precision, as in our training, no recomputation to save memory, and one
micro-batch per step.

The last line of stdout is the result as JSON: the fields of `Load`, and

- `tokens_per_second`: sampled tokens, all of them trained, per second of generating, grading and training;
- `sampled_tokens` and `seconds`: numerator and denominator of that ratio, over `steps` steps;
- `cpu_seconds`: CPU seconds of the same steps, for a machine with other load;
- `mean_length`, `longest`, `truncated`: tokens of the completions, and the share that was truncated;
- `mean_prompt`: tokens of the prompts;
- `reward`: mean share of the required solutions that are correct;
- `threads`, `trl`, `transformers`, `torch`: number of threads, and versions.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import islice
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

import tyro
from orgthink_pocket.shipped import MODELS
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI

from orgthink.grammar.actions import Answer
from orgthink.grammar.asyncthink import AsyncThinkScanner
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Problem
from orgthink.util.threads import set_threads

if TYPE_CHECKING:
    from trl import GRPOTrainer

FOLDER = MODELS / "pocket-base"
LEARNING_RATE = 5e-4
"""Learning rate of the recipe `asyncthink-pocket-sequential`."""


@dataclass(frozen=True)
class Load:
    """Size of the measurement."""

    problems: int = 8
    """Number of different problems per step."""
    group: int = 8
    """Number of samples of each problem."""
    max_tokens: int = 192
    """Largest number of tokens of a completion."""
    steps: int = 4
    """Number of steps after the warm-up step."""
    learning_rate: float = LEARNING_RATE
    """Learning rate, which is constant."""


class Sample(NamedTuple):
    """One completion."""

    tokens: int
    """Number of tokens that are sampled and trained, the end-of-text token included."""
    ended: bool
    """Whether it ended before the token limit."""
    reward: float
    """Reward, min(n_c, n_s) / n_s."""


class Moment(NamedTuple):
    """Clocks at the end of a step."""

    wall: float
    """Wall-clock seconds."""
    cpu: float
    """CPU seconds of all threads."""


class Grader:
    """The reward function for TRL. It keeps the completions that it graded."""

    __name__ = "share of the solutions"

    def __init__(self, problems: list[Problem], tokenizer: Tokenizer) -> None:
        self._problems, self._tokenizer = problems, tokenizer
        self.steps: list[list[Sample]] = []
        """Completions of each step."""

    def __call__(self, completion_ids: list[list[int]], problem: list[int], **_: Any) -> list[float]:
        """TRL calls this once per step with keyword arguments. `problem` is a column of the data."""
        self.steps.append(
            [
                Sample(len(ids), ids[-1] in self._tokenizer.eos_ids, self._grade(self._problems[i], ids))
                for i, ids in zip(problem, completion_ids, strict=True)
            ]
        )
        return [sample.reward for sample in self.steps[-1]]

    def _grade(self, problem: Problem, ids: list[int]) -> float:
        scanner = AsyncThinkScanner("answer")
        events = [*scanner.feed(self._tokenizer.decode(ids)), *scanner.close()]
        answer = next((event.action.text for event in events if isinstance(event.action, Answer)), "")
        grade = COUNTDOWN_MINI.grade(problem, answer)
        return min(grade.correct, grade.required) / grade.required


def measure(load: Load) -> dict[str, Any]:
    """Train for the warm-up and `load.steps` steps."""
    import torch

    tokenizer = Tokenizer(FOLDER)
    problems = list(islice(COUNTDOWN_MINI.problems("train", 0), load.problems * (load.steps + 1)))
    prompts = [tokenizer.prompt(prompt("pocket", "sequential", problem)) for problem in problems]
    texts = [span.text for span in prompts]
    grader = Grader(problems, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(load, texts, grader, folder)
        assert not trainer.model.is_activation_checkpointing
        read = [tuple(ids) for ids in trainer.processing_class(text=texts)["input_ids"]]
        assert read == [span.token_ids for span in prompts], "TRL reads other prompts than we do"
        ends = _step_ends(trainer)
        trainer.train()
    assert len(grader.steps) == len(ends) == load.steps + 1, "TRL generates once a step"
    samples = [sample for step in grader.steps[1:] for sample in step]
    tokens, seconds = sum(sample.tokens for sample in samples), ends[-1].wall - ends[0].wall
    return asdict(load) | {
        "tokens_per_second": tokens / seconds,
        "sampled_tokens": tokens,
        "seconds": seconds,
        "cpu_seconds": ends[-1].cpu - ends[0].cpu,
        "mean_length": tokens / len(samples),
        "longest": max(sample.tokens for sample in samples),
        "truncated": mean(not sample.ended for sample in samples),
        "mean_prompt": mean(span.tokens for span in prompts),
        "reward": mean(sample.reward for sample in samples),
        "threads": torch.get_num_threads(),
        **{name: version(name) for name in ("trl", "transformers", "torch")},
    }


def _trainer(load: Load, prompts: list[str], grader: Grader, folder: str) -> GRPOTrainer:
    import transformers
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    transformers.logging.set_verbosity_error()
    config = GRPOConfig(
        folder,
        per_device_train_batch_size=load.problems * load.group,
        num_generations=load.group,
        max_completion_length=load.max_tokens,
        max_steps=load.steps + 1,
        learning_rate=load.learning_rate,
        lr_scheduler_type="constant",
        temperature=1.0,
        epsilon=0.2,
        epsilon_high=0.28,
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    return GRPOTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype="float32"),
        processing_class=transformers.AutoTokenizer.from_pretrained(FOLDER, padding_side="left"),
        args=config,
        reward_funcs=grader,
        train_dataset=Dataset.from_list([{"prompt": text, "problem": i} for i, text in enumerate(prompts)]),
    )


def _step_ends(trainer: GRPOTrainer) -> list[Moment]:
    """Clocks at the end of each step, its optimizer step included. The callback fills them in."""
    from transformers import TrainerCallback

    ends: list[Moment] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(Moment(time.perf_counter(), time.process_time()))

    trainer.add_callback(Clock())
    return ends


def main() -> None:
    load = tyro.cli(Load, description=__doc__)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    set_threads(spare=0)
    print(json.dumps(measure(load)), flush=True)


if __name__ == "__main__":
    main()
