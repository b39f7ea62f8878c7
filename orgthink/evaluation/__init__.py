"""Problems × organizations × samples → a run folder: plan, resolve, open, run, summarise."""
