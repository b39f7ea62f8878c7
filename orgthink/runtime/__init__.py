"""What organizations are written in, and what runs them."""

from orgthink.errors import Failure
from orgthink.runtime.agent import Agent, Backing
from orgthink.runtime.attempt import Organization, attempt
from orgthink.runtime.budget import Budget, BudgetExhausted, Limits
from orgthink.runtime.result import Result
from orgthink.runtime.session import Session

__all__ = [
    "Agent",
    "Backing",
    "Budget",
    "BudgetExhausted",
    "Failure",
    "Limits",
    "Organization",
    "Result",
    "Session",
    "attempt",
]
