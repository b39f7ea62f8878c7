"""What organizations are written in, and what runs them."""

from orgthink.runtime.agent import Agent, Result, Role
from orgthink.runtime.attempt import Organization, attempt
from orgthink.runtime.budget import Budget, BudgetExhausted
from orgthink.runtime.session import Limits, Session

__all__ = ["Agent", "Budget", "BudgetExhausted", "Limits", "Organization", "Result", "Role", "Session", "attempt"]
