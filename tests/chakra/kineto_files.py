"""Profiles as Kineto writes them, of ranks that are not there: a device that computes and
communicates on streams, and a host that launches both and waits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMPUTE_STREAM = 7
_HOST_THREAD = 1


@dataclass(slots=True)
class Profile:
    """A rank's profile, made act by act. Times are microseconds; `host` is the host's own."""

    rank: int
    groups: Mapping[str, Sequence[int]]
    world: int
    host: float = 1000.0
    launch: float = 2.0
    events: list[dict[str, Any]] = field(default_factory=list)
    _free: dict[int, float] = field(default_factory=dict)
    _behind: dict[int, float] = field(default_factory=dict)
    _number: int = 0

    def compute(self, micros: float, name: str = "gemm") -> None:
        """A kernel on the stream that computes."""
        self._kernel(COMPUTE_STREAM, micros, name, {})

    def communicate(
        self,
        name: str,
        group: str,
        elements: int,
        micros: float,
        *,
        stream: int = 20,
        told: str = "kernel",
        late: float = 0.0,
        **words: Any,
    ) -> int:
        """A call of NCCL behind all that the current stream has; returns its stream. `told` is who
        says what it is: the kernel, the host's record, or neither."""
        ranks = list(self.groups[group])
        said: dict[str, Any] = {
            "Collective name": name,
            "In msg nelems": elements,
            "Out msg nelems": elements,
            "dtype": "Float",
            "Process Group Name": group,
            "Process Group Ranks": json.dumps(ranks),
            "Group size": len(ranks),
            "Rank": 0,
        } | {key.replace("_", " "): value for key, value in words.items()}
        start = self.host
        self.host += 0.5 + late
        self._behind[stream] = max(
            self._behind.get(stream, 0.0), self._free.get(COMPUTE_STREAM, 0.0)
        )
        self._kernel(stream, micros, "ncclDevKernel", said if told == "kernel" else {})
        about = {"Record function id": self._number, **(said if told != "nobody" else {})}
        self._add("cpu_op", "record_param_comms", start, self.host - start, about, _HOST_THREAD)
        return stream

    def record(self, name: str, group: str, elements: int, **words: Any) -> None:
        """A call that a later kernel carries out with others."""
        about = {
            "Collective name": name,
            "In msg nelems": elements,
            "Out msg nelems": elements,
            "dtype": "Float",
            "Process Group Name": group,
            "Process Group Ranks": json.dumps(list(self.groups[group])),
        } | {key.replace("_", " "): value for key, value in words.items()}
        self._add("cpu_op", "record_param_comms", self.host, 0.4, about, _HOST_THREAD)
        self.host += 1.0

    def together(self, micros: float, stream: int = 20) -> None:
        """The kernel of what was recorded."""
        self._behind[stream] = self._free.get(COMPUTE_STREAM, 0.0)
        self._kernel(stream, micros, "ncclDevKernel_SendRecv", {})

    def wait(self, stream: int) -> None:
        """The stream that computes waits for another one."""
        self.host += 0.5
        self._add("cuda_runtime", "cudaStreamWaitEvent", self.host, 0.3, {}, _HOST_THREAD)
        self.host += 0.5
        self._behind[COMPUTE_STREAM] = max(
            self._behind.get(COMPUTE_STREAM, 0.0), self._free.get(stream, 0.0)
        )

    def document(self) -> dict[str, Any]:
        config = [
            {"pg_name": name, "pg_desc": name, "ranks": list(ranks), "pg_size": len(ranks)}
            for name, ranks in self.groups.items()
        ]
        about = {"backend": "nccl", "rank": self.rank, "world_size": self.world}
        about |= {"pg_count": len(config), "pg_config": config}
        return {"schemaVersion": 1, "distributedInfo": about, "traceEvents": self.events}

    def write(self, prefix: Path) -> Path:
        path = Path(f"{prefix}.{self.rank}.json")
        path.write_text(json.dumps(self.document()))
        return path

    def _kernel(self, stream: int, micros: float, name: str, about: dict[str, Any]) -> None:
        self._number += 1
        words = {"correlation": self._number}
        self._add("cuda_runtime", "cudaLaunchKernel", self.host, 0.2, words, _HOST_THREAD)
        behind = max(self._free.get(stream, 0.0), self._behind.get(stream, 0.0))
        start = max(behind, self.host + self.launch)
        self.host += 0.3
        self._free[stream] = start + micros
        words |= {"stream": stream, "device": 0, **about}
        self._add("kernel", name, start, micros, words, stream)

    def _add(
        self, category: str, name: str, at: float, micros: float, args: dict[str, Any], thread: int
    ) -> None:
        event = {"ph": "X", "cat": category, "name": name, "ts": at, "dur": micros}
        self.events.append(event | {"tid": thread, "args": args})
