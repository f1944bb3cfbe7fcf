"""A question that a child answers, so that namespaces and sockets that it takes go with it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

from emulator.linux.signals import end_with_parent


def answer_of_child(work: Callable[[], Any]) -> Any:
    """The value that `work` returns in a child, as JSON has it; sets become lists in order. The
    child ends also on Ctrl-C. Raises OSError with the words of what the child raised."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        end_with_parent()
        try:
            answer = json.dumps({"found": work()}, default=sorted)
        except BaseException as problem:
            answer = json.dumps({"failed": str(problem) or type(problem).__name__})
        os.write(writing, answer.encode())
        os._exit(0)
    try:
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = json.loads(pipe.read() or '{"failed": "the child that was asked died"}')
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.waitpid(child, 0)
    if "failed" in said:
        raise OSError(said["failed"])
    return said["found"]
