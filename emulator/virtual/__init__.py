"""The virtual kernel: a User-Mode Linux of our own build in time-travel mode.

`build` makes the kernel, `boot` runs a command as root inside it. No privilege is needed.
"""
