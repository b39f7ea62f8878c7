"""Training at the scale of clusters: engines that hold weights and sample across many machines, driven by our loop."""
