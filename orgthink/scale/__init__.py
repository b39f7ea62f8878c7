"""Training on clusters: verl holds the weights and samples, the training loop is ours; and estimates of its size."""
