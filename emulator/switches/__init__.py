"""The switches of the native kernel: shared memory, pauses, and the watch for deadlocks.

The virtual kernel's switches are in its own C. Three names to know: `SwitchMemory`,
`PauseController` and `SwitchArrangement`.
"""
