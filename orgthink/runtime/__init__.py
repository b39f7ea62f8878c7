"""What organizations are written in, and what runs them."""

from orgthink.runtime.agent import Agent, Backing, Result
from orgthink.runtime.approval import Approve, PendingCall
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import BudgetExhausted, Limits
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.util.errors import Failure

__all__ = [
    "Agent",
    "Approve",
    "Backing",
    "BudgetExhausted",
    "Failure",
    "Limits",
    "Organization",
    "PendingCall",
    "Result",
    "Session",
    "attempt",
]
