"""REINFORCE for a puppeteer's policy (Puppeteer, Dang et al., 2025).

The reward of the last decision is +1 for a right answer and −1 for a wrong one. Each decision t also costs
`cost × log(1 + t) × tokens / 1000`, more or less for actions that search and for the stop by their factors. The return
of a decision adds up what follows with γ. Puppeteer has neither a baseline nor an entropy bonus; `baseline` and
`entropy` are ours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from orgthink.record.episode import Episode
from orgthink.training.checkpoint import load_optimizer
from orgthink.training.rollout import Rollout
from orgthink.util.errors import UserError, require_above_zero, require_at_least
from orgthink_arena.organizations.puppet_policy import STOP, PuppetPolicy, Vector, load, size
from orgthink_arena.organizations.puppeteer import Puppeteer

FILE = "policy.safetensors"
"""Name of the policy's file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PuppeteerSettings:
    """Settings of the training."""

    rollout: Rollout
    """Problems, the organization `puppeteer` and the frozen models of its pool."""
    steps: int
    """Number of optimizer steps."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    hidden: tuple[int, ...] = (128, 32)
    """Widths of the hidden layers, as in the paper behind its first."""
    gamma: float = 0.99
    """γ."""
    cost: float = 0.1
    """Price of 1,000 sampled tokens in the first step, before its logarithm."""
    search_factor: float = 1.5
    """Factor on the cost of a step with an action that searches."""
    stop_factor: float = 0.5
    """Factor on the cost of the stop, which counts as 1,000 tokens."""
    baseline: Literal["none", "group"] = "none"
    """What is subtracted from a return: nothing, or the mean total reward of the attempts at the same problem."""
    entropy: float = 0.0
    """Weight of the entropy of the policy, which is added to the objective."""
    seed: int = 0
    """Seed of weights, problems and sampling."""
    save_every: int = 10
    """Number of steps between checkpoints."""
    record_every: int = 10
    """Episodes are stored every so many steps."""

    report_every: ClassVar[int] = 1
    """Number of steps between two progress lines if the output is not a terminal."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "steps", "save_every", "record_every")
        require_at_least(0, self, "gamma", "cost", "search_factor", "stop_factor", "entropy")
        require_above_zero(self, "learning_rate")
        if self.rollout.roles:
            raise ValueError("rollout.roles names roles to train: the policy is trained, and no model")
        if not isinstance(self.organization, Puppeteer):
            raise ValueError(f"the organization is {self.rollout.organization.organization}: it must be puppeteer")
        if self.organization.temperature <= 0:
            raise ValueError("the organization's temperature is 0: it must be above 0, so that actions are drawn")

    @property
    def organization(self) -> Puppeteer:
        """The organization, whose own policy is not used."""
        made: Any = self.rollout.made
        return made

    def progress_text(self, line: Mapping[str, Any]) -> str:
        """The most important metrics of a step, as one line for the user."""
        return (
            f"accuracy {line['accuracy']:.2f}  reward {line['reward']:.2f}  decisions {line['decisions']:.1f}  "
            f"tokens {line['tokens']:.0f}  entropy {line['entropy']:.2f}  {line['seconds']:.0f} s"
        )


class Drawn(NamedTuple):
    """A decision of the policy."""

    state: Vector
    """What it saw."""
    action: int
    """Index of what it drew."""


class Played(NamedTuple):
    """An episode and the decisions in it."""

    episode: Episode
    """Graded."""
    decisions: list[Drawn]
    """In order, the stop included."""


def rewards(played: Played, settings: PuppeteerSettings, actions: Sequence[str]) -> list[float]:
    """The reward of each decision of a graded episode."""
    root, grade = played.episode.root.agent, played.episode.grade
    assert grade is not None, f"episode {played.episode.id} is not graded"
    found: list[float] = []
    for step, decision in enumerate(played.decisions, 1):
        agents = [t for t in played.episode.traces if t.agent.startswith(f"{root}/{step}.")]
        tokens, action = sum(trace.steps for trace in agents), actions[decision.action]
        if action == STOP:
            tokens, factor = 1000, settings.stop_factor
        else:
            factor = settings.search_factor if "search" in action.partition(":")[0] else 1.0
        found.append(-settings.cost * math.log(1 + step) * factor * tokens / 1000)
    if found:
        found[-1] += 1.0 if grade.all_correct else -1.0
    return found


def returns(found: Sequence[float], gamma: float) -> list[float]:
    """G_t: the reward of each decision and of those after it, each later one discounted by γ."""
    total, reversed_returns = 0.0, list[float]()
    for reward in reversed(found):
        total = reward + gamma * total
        reversed_returns.append(total)
    return reversed_returns[::-1]


class Learner:
    """The network and its optimizer."""

    def __init__(self, settings: PuppeteerSettings) -> None:
        self.settings, self.actions = settings, settings.organization.actions
        widths = [size(len(self.actions)), *settings.hidden, len(self.actions)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.linear = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
        nn.init.zeros_(self.linear[-1].weight)  # every action is as likely before the first step
        nn.init.zeros_(self.linear[-1].bias)
        self.optimizer = torch.optim.Adam(
            [parameter for linear in self.linear for parameter in linear.parameters()], settings.learning_rate
        )

    @property
    def policy(self) -> PuppetPolicy:
        """The network as it is now."""
        layers = ((one.weight, one.bias) for one in self.linear)
        return PuppetPolicy(
            self.actions, tuple((w.detach().numpy().copy(), b.detach().numpy().copy()) for w, b in layers)
        )

    def logprobs(self, states: Tensor) -> Tensor:
        """Log-probability of each action in each state, at the temperature at which it is drawn."""
        for linear in self.linear[:-1]:
            states = torch.relu(linear(states))
        return torch.log_softmax(self.linear[-1](states) / self.settings.organization.temperature, -1)

    def learn(self, played: Sequence[Played]) -> dict[str, float]:
        """One step of REINFORCE on these episodes; its metrics."""
        settings = self.settings
        earned = [rewards(one, settings, self.actions) for one in played]
        means = _means(played, [sum(each) for each in earned]) if settings.baseline == "group" else {}
        targets = [
            value - means.get(one.episode.problem.id, 0.0)
            for one, each in zip(played, earned, strict=True)
            for value in returns(each, settings.gamma)
        ]
        decisions = [decision for one in played for decision in one.decisions]
        logprobs = self.logprobs(torch.stack([torch.from_numpy(decision.state) for decision in decisions]))
        drawn = logprobs[torch.arange(len(decisions)), torch.tensor([decision.action for decision in decisions])]
        entropy = -(logprobs.exp() * logprobs).sum(-1).mean()
        loss = -(drawn * torch.tensor(targets)).sum() / len(played) - settings.entropy * entropy
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"reward": fmean(map(sum, earned)), "loss": loss.item(), "entropy": entropy.item()}

    def save(self, folder: Path) -> None:
        """Write the policy and the optimizer into a checkpoint."""
        self.policy.save(folder / "model" / FILE)
        torch.save(self.optimizer.state_dict(), folder / "trainer.pt")

    def load(self, folder: Path) -> None:
        """Restore a checkpoint. UserError if it is damaged, or of other settings."""
        try:
            policy = load(folder / "model" / FILE)
            with torch.no_grad():
                for linear, (weight, bias) in zip(self.linear, policy.layers, strict=True):
                    linear.weight.copy_(torch.from_numpy(weight))
                    linear.bias.copy_(torch.from_numpy(bias))
            load_optimizer(folder / "trainer.pt", self.optimizer)
        except UserError:
            raise
        except Exception as error:  # damaged pickles raise anything
            raise UserError(f"{folder} is not a checkpoint of this training: {error}") from error


def _means(played: Sequence[Played], totals: Sequence[float]) -> dict[str, float]:
    """Mean total reward of each problem's episodes."""
    groups: dict[str, list[float]] = {}
    for one, total in zip(played, totals, strict=True):
        groups.setdefault(one.episode.problem.id, []).append(total)
    return {problem: fmean(group) for problem, group in groups.items()}
