"""A process that has imported torch with virtual GPUs, and runs each script in a copy of itself.
It reads a line of JSON for each (plan, script, files for its output), and answers with its
status."""

from __future__ import annotations

import json
import os
import sys
import traceback

import torch

_PRELUDE = """
def floats(count): return torch.empty(count, device="cuda")
def event(): return torch.cuda.Event(enable_timing=True)
"""


def main() -> None:
    """Serve until there is no more to read."""
    gpu = sys.modules["_groundwire_gpu"]
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            for number, path in ((1, order["stdout"]), (2, order["stderr"])):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            gpu.configure(order["plan"])
            for time in order["plan"]["times"]:
                gpu.add_time(*time)
            status = 0
            try:
                exec(_PRELUDE + order["script"], {"torch": torch, "gpu": gpu})
            except BaseException:
                traceback.print_exc()
                status = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        _, ended = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(ended), flush=True)


main()
