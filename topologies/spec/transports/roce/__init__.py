"""RoCE in a spec: its transport, its controllers of congestion, and what is checked of them."""
