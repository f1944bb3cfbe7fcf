"""RoCE beside TCP and by congestion controller; docs/roce.md and roce-congestion.md have the
commands."""
