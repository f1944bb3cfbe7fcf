"""Has virtual GPUs run programs in place of Gloo's own algorithms, where the run's spec says so.

`loading.py` beside this file loads it. The backend's part of it is Groundwire's, for which the
program's Python needs what Groundwire needs (numpy, pydantic, PyYAML).
"""

from __future__ import annotations

import sys
from typing import Any


class Programs:
    """Makes what runs the programs of a process group. `root` is where Groundwire's packages
    lie."""

    def __init__(self, root: str) -> None:
        self._root = root

    def __call__(self, *group: Any) -> Any:
        """Those of a group, as `workloads.torch_backend.device_programs` has them. Raises
        ImportError."""
        if self._root not in sys.path:
            sys.path.append(self._root)
        try:
            from workloads.torch_backend.device_programs import DevicePrograms
        except ImportError as error:
            raise ImportError(
                f"collectives.backend: {sys.executable} lacks a package that programs of "
                f"collectives need ({error}); expected a Python in which Groundwire is installed, "
                "or network: simulated, which needs none"
            ) from error
        return DevicePrograms(*group)
