"""Training on clusters: verl holds the weights and samples, the training loop is ours; estimates of its size; simulations of serving."""
