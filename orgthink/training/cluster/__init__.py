"""Training on clusters: verl holds the weights and samples, the training loop is ours. Estimates of its size, and
simulations of organizations on GPUs."""
