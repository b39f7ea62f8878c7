"""Our organizations, sources and losses on verl 0.9: Ray places them, FSDP trains, its rollout servers sample.

verl's own trainer, `python -m verl.trainer.main_ppo`, opens workers and servers; from there on `train_policy` drives,
the loop of the embedded trainer, through another backend. So nothing that decides a result is written twice.

    placement.py where verl runs
    launch.py    a run folder → verl's settings, what cannot be, and the process
    nodes.py     whether a cluster has the nodes that a run asks for, and the end of one that loses a node
    trainer.py   verl's trainer, which hands its workers over to our loop
    backend.py   `PolicyBackend`: rows go to the workers through TransferQueue
    rows.py      a row as verl's fields, and what no row may be
    loss.py      our loss, as the workers call it
    engine.py    `Engine`: tokens in and out of verl's rollout servers
    cpu.py       a platform without GPUs: for tests, and to look at a run on a laptop
"""
