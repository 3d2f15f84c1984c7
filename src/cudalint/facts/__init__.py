"""Facts about functions, kernels and launches: values, guards, uniformity, shapes, links."""

from __future__ import annotations

from cudalint.facts.analysis import analyse

__all__ = ["analyse"]
