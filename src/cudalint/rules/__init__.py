"""The rules: one module a rule or a small family, found by :mod:`cudalint.rules.registry`."""
