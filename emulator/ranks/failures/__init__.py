"""How runs fail: what is said of it."""
