"""The switches of the native kernel: shared memory, pauses, and the watch for deadlocks."""
