"""Virtual GPUs: a `cuda` device and a backend `nccl` for torch, on a machine that has neither.

It is what goes into a program of a user: torch's own Python stays as it is, and gets the compiled
part that a CPU wheel lacks. It is no model of a GPU's inside: a kernel has a time, and no more.
Three names to know: `gpu_plan` (a spec's words on the devices), `library_for` (the compiled part
for a torch), `install` (how it gets into a program's torch). In `extension/`, timeline.hpp has
streams in virtual time, operators.cpp the acts of an operator.
"""
