"""Training on verl 0.9: Ray places the processes, FSDP trains, verl's rollout servers sample.

verl's own trainer, `python -m verl.trainer.main_ppo`, opens workers and servers. Then `train_policy`, the loop of the
embedded trainer, drives them through another backend. No algorithm is written twice.

    launch.py    a run folder → verl's settings, their sizes and its process; refuses what verl cannot train
    backend.py   verl's trainer, which passes its workers to our loop as a `PolicyBackend`
    rows.py      a row as fields of verl, and our loss function, called by the workers
    engine.py    `Engine`: verl's rollout servers as an engine

`orgthink_pocket.verl_cpu` is a platform without GPUs, for tests and trials on a laptop.
"""
