"""What RoCE does, beside TCP and by congestion controller; docs/roce.md has the commands."""
