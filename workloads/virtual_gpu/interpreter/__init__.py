"""The part of virtual GPUs that goes into a program's Python, before its torch is imported.

These modules are loaded by their files, as the observer's are: they import nothing but the standard
library, each other, the compiled part, and the program's own torch.
"""
