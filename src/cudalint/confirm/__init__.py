"""The proof layer: experiments that run a rule's kernel in the simulator and judge what they see.

``cudalint confirm`` comes here and nothing else does: ``check`` imports neither this package nor NumPy.
"""
