"""Organizations of language models: run, measured, trained.

Reading order is import order is data flow: *text → actions → episode → numbers → credit → weights*. A module
imports only from floors below its own (or beside it); `tests/test_layers.py` fails on an upward arrow.

6  cli
5  training · evaluate
4  organizations
3  view · export
2  runtime · measure · store
1  engines · grammar · episode · tasks
"""

__version__ = "0.1.0"
