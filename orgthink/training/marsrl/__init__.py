"""The training of MarsRL: chains of grouped rollouts, each agent with its own reward, as a pipeline."""
