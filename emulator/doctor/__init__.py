"""What this machine can do, and what it lacks."""
