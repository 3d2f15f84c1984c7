"""Facts about functions, kernels and launches: values, guards, uniformity, shapes, links."""
