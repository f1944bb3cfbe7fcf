"""The virtual kernel: a User-Mode Linux of our own build in time-travel mode, without privileges.

`building/` makes the kernel, `boot.py` runs a command as root inside it, `memory/` says how much a
guest gets. The programs that run in a guest are not here. Three names to know: `ensure_kernel`,
`GuestSpec` and `run_guest`.
"""
