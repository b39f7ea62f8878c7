"""Public benchmarks (`bench:NAME`) and reasoning-gym (`gym:NAME`)."""
