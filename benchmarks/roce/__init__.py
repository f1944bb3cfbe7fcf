"""RoCE beside TCP and by congestion controller; docs/roce.md has the commands."""
