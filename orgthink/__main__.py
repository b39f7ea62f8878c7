"""`python -m orgthink`."""

from orgthink.cli import program

program()
