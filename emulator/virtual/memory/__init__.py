"""Guest memory: how much, from where, and what happens when it runs out."""
