"""Networks with weights: layout, graph, batches, files, warm start."""
