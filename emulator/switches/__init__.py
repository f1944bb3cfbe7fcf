"""What the native kernel's switches need: shared memory, pauses, and the watch for deadlocks."""
