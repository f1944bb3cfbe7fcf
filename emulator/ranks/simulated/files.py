"""The files of a simulated network's directory."""

SOCKET, NETWORK, ENGINE, COUNTERS = "socket", "network", "engine", "counters.json"
"""Where ranks post, the network's columns, the engine's program, and what is left at the end."""

SECTION = "section.json"
"""The section by which collectives run (`collectives.carried`)."""

MESHES = 8
"""How many connections two ranks have: each of their groups has its own, as Gloo's do."""
