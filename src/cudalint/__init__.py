"""cudalint: a static linter for CUDA."""

__version__ = "0.1.0"
