"""Launch contracts: what a kernel asks of each of its launches and C++ can neither say nor check."""
