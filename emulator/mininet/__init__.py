"""Mininet on our fabrics: its nodes, its CLI and its Topo API; our namespaces, links and routes.

It is no second emulator: what Mininet would change of a fabric is refused. Three names to know:
`FabricMininet`, `run_shell` and `fabric_of_topo`.
"""

import sys
from importlib import import_module
from importlib.util import find_spec

_RELEASE = "mininet==2.3.0.dev6"


class MininetMissing(ValueError):
    """Mininet is not installed; the message has the line that installs it."""


try:
    import mininet  # noqa: F401
except ModuleNotFoundError:
    raise MininetMissing(
        "Mininet's command line and its topologies need Mininet, which is not installed: "
        f"{sys.executable} -m pip install {_RELEASE} setuptools"
    ) from None

if find_spec("distutils") is None:
    # Mininet imports it, Python has none since 3.12, and setuptools brings one.
    import_module("setuptools")
