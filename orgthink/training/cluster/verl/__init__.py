"""Training on verl 0.9: Ray places the processes, FSDP trains, verl's rollout servers sample.

verl's own trainer, `python -m verl.trainer.main_ppo`, opens workers and servers. Then `train_policy`, the loop of the
embedded trainer, drives them through another backend. No algorithm is written twice.

    placement.py nodes and GPUs for verl
    launch.py    a run folder → verl's settings and its process; refuses what verl cannot train
    nodes.py     checks that a cluster has enough nodes, and ends a run that loses a node
    trainer.py   verl's trainer, which passes its workers to our loop
    backend.py   `PolicyBackend`: sends rows to the workers through TransferQueue
    rows.py      a row as fields of verl
    loss.py      our loss function, called by the workers
    engine.py    `Engine`: verl's rollout servers as an engine
    cpu.py       a platform without GPUs, for tests and trials on a laptop
"""
