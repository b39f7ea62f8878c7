"""A simulation of organizations on a finite number of GPUs: wall clock, utilization and cost.

Order of reading: `program` (what an agent does, in tokens), `recorded` (the programs of recorded episodes), `synthetic`
(fork–join, trees, rounds, votes), `engine` (seconds of a decoding step), `gpu` (an estimate of them), `replica` (the
batch of one GPU), `cluster` (all replicas, and the events between them).

The simulation is exact for its model of an engine. docs/cost_at_scale.md compares it with measured runs.
"""
