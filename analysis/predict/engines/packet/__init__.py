"""The packet engine's scenario of a setting and of collectives, and its answer."""
