"""Launch contracts: what a kernel asks of each of its launches and C++ can neither say nor check."""

from __future__ import annotations

from cudalint.contracts.infer import Requirement, requirements
from cudalint.contracts.launches import Kept, kept

__all__ = ["Kept", "Requirement", "kept", "requirements"]
