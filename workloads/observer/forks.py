"""A program's Python that imports torch once, and forks every process of the program from itself.

`python forks.py N M [DIRECTORY WORD...]` is that server: it takes orders from the socket N, and M
is the other end, by which what it has forked gives orders too. It imports what a program with these
words behind its Python imports, too (`main_imports`), and ends where ranks may not share it. A
process orders another one by `order`, and hears of its end by `Ordered`. A fork has the arguments,
environment, files, host and modules of a Python that was started for it. The modules that the
server has imported are on a shelf: the program finds them when it imports them, and not before.
Itself it imports nothing but the standard library and the program's own torch.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import gc
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import os
import pathlib
import select
import signal
import socket
import struct
import sys
import threading
import time
import types
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

_PLAN_VARIABLE = "GROUNDWIRE_OBSERVE"
# torch imports the later ones at a first optimizer, mesh or wrapper: seconds, for each process.
_IMPORTED = (
    ("torch",),
    ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel"),
)
_NAMESPACES = (("mnt", 0x00020000), ("uts", 0x04000000), ("ipc", 0x08000000), ("net", 0x40000000))
_MAIN_IMPORTS = "groundwire_observer.main_imports"
_QUERY = 0xFFFFFFFF
_PR_SET_PDEATHSIG = 1
_NR_SCHED_SETATTR = 314
_MESSAGE_BYTES = 1 << 20
STEP_NS = 1_000
"""Processes of programs follow each other by this: two that begin in one nanosecond, and draw
random numbers by the clock, draw the same ones. Many count it in microseconds."""
_LAUNCHERS = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"
_GROUPS = "torch.distributed.distributed_c10d"  # it holds what process groups a program has left
_CANNOT_FLUSH = 120  # Python's exit code
_libc = ctypes.CDLL(None, use_errno=True)


# -- who orders ----------------------------------------------------------------------------------


class Ordered:
    """A process that has been ordered: as much of subprocess.Popen as launchers ask for."""

    stdin = stdout = stderr = None

    def __init__(self, args: Sequence[str], answers: socket.socket) -> None:
        """Raises ConnectionError where the server cannot fork it."""
        self.args = args
        self.returncode: int | None = None
        self._answers = answers
        self.pid = int(self._answer()["pid"])

    def poll(self) -> int | None:
        """Its exit code, or the negative number of the signal that ended it; None: it runs."""
        if self.returncode is None and select.select([self._answers], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutExpired of subprocess."""
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                import subprocess

                raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing where it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = int(self._answer()["code"])
        self._answers.close()

    def _answer(self) -> Any:
        said = self._answers.recv(_MESSAGE_BYTES)
        if not said:
            raise ConnectionError("the process that forks ranks has gone")
        return json.loads(said)


def order(
    orders: int,
    args: Sequence[str],
    environment: Mapping[str, str],
    files: Sequence[int],
    slice_ns: int = 0,
) -> Ordered:
    """Have `args` be a process of this one's host and working directory, with these standard
    files, that asks the scheduler for a slice of so many nanoseconds (0: it does not). Raises
    OSError (ConnectionError: there is no server)."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    spaces = [
        os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name, _ in _NAMESPACES
    ]
    try:
        told = {
            "args": list(args), "environment": dict(environment), "directory": os.getcwd(),
            "personality": _libc.personality(ctypes.c_ulong(_QUERY)), "umask": _umask(),
            "orderer": os.getpid(), "slice_ns": slice_ns,
        }  # fmt: skip
        sent = array.array("i", [theirs.fileno(), *files, *spaces])
        # The order itself is a message of the pair's: one on the common socket has a limit.
        with socket.socket(fileno=os.dup(orders)) as common:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)
            common.sendmsg([b"x"], [rights])
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
        ours.send(json.dumps(told).encode())
    finally:
        theirs.close()
        for space in spaces:
            os.close(space)
    return Ordered(args, ours)


def can_fork(args: Sequence[str]) -> bool:
    """Whether a command line of a Python is a script or a module and no options that change it."""
    rest = [word for word in args[1:2] if word == "-u"]
    words = list(args[1 + len(rest) :])
    return bool(words) and (not words[0].startswith("-") or (words[0] == "-m" and len(words) > 1))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# -- the server ----------------------------------------------------------------------------------


class _Child:
    def __init__(self, pid: int, answers: socket.socket) -> None:
        self.pid, self.answers, self.handle = pid, answers, os.pidfd_open(pid)


class _Server:
    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._children: list[_Child] = []
        self._next_ns = 0

    def serve(self) -> dict[str, Any]:
        """Never returns in the server; in what it forks, returns its order."""
        while True:
            watched = select.poll()
            watched.register(self._orders, select.POLLIN)
            for child in self._children:
                watched.register(child.handle, select.POLLIN)
                watched.register(child.answers, select.POLLIN)
            ready = {number for number, _ in watched.poll()}
            for child in list(self._children):
                if child.handle in ready:
                    self._ended(child)
                elif child.answers.fileno() in ready:  # who ordered it has gone
                    with suppress(ProcessLookupError):
                        os.kill(child.pid, signal.SIGKILL)
                    os.waitpid(child.pid, 0)
                    self._forget(child)
            if self._orders.fileno() in ready:
                found = self._take()
                if found is not None:
                    return found

    def _take(self) -> dict[str, Any] | None:
        room = socket.CMSG_SPACE(16 * array.array("i").itemsize)
        _, rights, _, _ = self._orders.recvmsg(1, room)
        if not rights:
            os._exit(0)  # nobody is left to order anything
        handed = array.array("i", rights[0][2])
        answers = socket.socket(fileno=handed[0])
        told: dict[str, Any] = json.loads(answers.recv(_MESSAGE_BYTES))
        while (left_ns := self._next_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
        self._next_ns = time.monotonic_ns() + STEP_NS
        pid = os.fork()
        if pid == 0:
            self._leave()
            answers.close()
            told["files"], told["namespaces"] = handed[1:4], handed[4:]
            return told
        for number in handed[1:]:
            os.close(number)
        child = _Child(pid, answers)
        self._children.append(child)
        with suppress(OSError):
            answers.send(json.dumps({"pid": pid}).encode())
        return None

    def _leave(self) -> None:
        for child in self._children:
            child.answers.close()
            os.close(child.handle)
        self._orders.close()

    def _ended(self, child: _Child) -> None:
        _, status = os.waitpid(child.pid, 0)
        with suppress(OSError):
            answer = {"code": os.waitstatus_to_exitcode(status)}
            child.answers.send(json.dumps(answer).encode())
        self._forget(child)

    def _forget(self, child: _Child) -> None:
        child.answers.close()
        os.close(child.handle)
        self._children.remove(child)


class Shelf(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that are imported and that `sys.modules` does not show. Modules that a package's
    import brought with it come with it."""

    def __init__(self) -> None:
        self._layers: list[dict[str, types.ModuleType]] = []
        self._kept: dict[str, Any] = {}

    def put(self, before: set[str]) -> None:
        """All but those from before."""
        shown = {name for layer in self._layers for name in layer}
        found = {name: sys.modules.pop(name) for name in set(sys.modules) - before}
        new = {name: module for name, module in found.items() if name not in shown}
        self._layers.append(new)

    def show(self) -> None:
        """All, for imports in the server."""
        for layer in self._layers:
            sys.modules.update(layer)

    def take(self, name: str) -> Any:
        return next((layer[name] for layer in self._layers if name in layer), None)

    def modules(self) -> list[types.ModuleType]:
        return [module for layer in self._layers for module in layer.values()]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        module = self.take(name)
        if module is None:
            return None
        self._kept[name] = module.__spec__, getattr(module, "__loader__", None)
        origin = getattr(module.__spec__, "origin", None)
        return importlib.machinery.ModuleSpec(name, self, origin=origin)

    def create_module(self, spec: Any) -> Any:
        return self.take(spec.name)

    def exec_module(self, module: Any) -> None:
        name = next(n for n in self._kept if self.take(n) is module)
        module.__spec__, module.__loader__ = self._kept.pop(name)
        package = name.partition(".")[0]
        for number, layer in enumerate(self._layers):
            if name not in layer:
                continue
            of_main = number >= len(_IMPORTED)  # the program is about to import all of it
            whole = of_main or package == "torch"
            for other in [*self._layers[:number], layer] if whole else [layer]:
                wanted = [n for n in other if whole or package == n.partition(".")[0]]
                for each in wanted:
                    sys.modules.setdefault(each, other.pop(each))
            return


def _import_once(before: set[str], directory: str, words: Sequence[str]) -> Shelf:
    shelf = Shelf()
    for layer in _IMPORTED:
        shelf.show()
        for name in layer:
            try:
                importlib.import_module(name)
            except Exception:  # what is not there is for the program to find out
                if name == "torch":  # half of it is loaded: Pythons of their own have to do so
                    os._exit(1)
        shelf.put(before)
    if words:
        shelf.show()
        of_main = importlib.import_module(_MAIN_IMPORTS)
        program = words, pathlib.Path(directory)
        if not of_main.import_all(of_main.imports_of(*program), of_main.arguments_of(*program)):
            os._exit(1)
        shelf.put(before)
    return shelf


# -- what has been forked --------------------------------------------------------------------------


def _become(told: dict[str, Any]) -> None:
    """The process of an order, up to its program's first line."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setsid()
    for descriptor, (name, kind) in zip(told["namespaces"], _NAMESPACES, strict=True):
        if _libc.setns(descriptor, kind) != 0:
            raise OSError(ctypes.get_errno(), f"enter the {name} namespace of a host")
        os.close(descriptor)
    _libc.personality(ctypes.c_ulong(told["personality"]))
    os.umask(told["umask"])
    os.chdir(told["directory"])
    for target, descriptor in enumerate(told["files"]):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(told["environment"])
    if told["slice_ns"]:
        _ask_for_slice(told["slice_ns"])
    plan = os.environ[_PLAN_VARIABLE]
    observer = getattr(sys.modules.get("groundwire_observer"), "of_process", None)
    if observer is not None:
        observer.renew()
    stacks = sys.modules.get("groundwire_observer.stacks")
    if stacks is not None:
        with suppress(OSError):  # as in a Python of its own, which goes on without
            stacks.listen(os.path.join(os.path.dirname(plan), "stacks"))
    # Whoever freezes a rank stops the process that has ordered it, and then what listens.
    if _is_stopped(told["orderer"]):
        os.kill(os.getpid(), signal.SIGSTOP)
    place = sys.modules.get("groundwire_virtual_gpu.place")
    if place is not None:
        with open(plan) as file:
            place.enter(json.load(file)["gpu"])


def _ask_for_slice(slice_ns: int) -> None:
    """As emulator/linux/scheduling.py does."""
    attributes = struct.pack("IIQiIQQQ", 48, os.SCHED_OTHER, 0, 0, 0, slice_ns, 0, 0)
    if _libc.syscall(ctypes.c_long(_NR_SCHED_SETATTR), 0, attributes, 0) != 0:
        raise OSError(ctypes.get_errno(), "sched_setattr")


def _is_stopped(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"
    return False


def _renew(shelf: Shelf) -> None:
    """Make anew what torch, numpy and Python make at their import for one process alone."""
    torch, numpy, platform = map(shelf.take, ("torch", "numpy.random", "platform"))
    if platform is not None:
        platform._uname_cache = None  # it has the name of a host
    if torch is not None:
        torch.set_num_threads(torch.get_num_threads())  # its pool does not survive a fork
    if numpy is not None:
        numpy.seed()


def _watch_launcher(shelf: Shelf, orders: int, slice_ns: int) -> None:
    """Has torchrun, in this process, order its ranks."""
    imported = shelf.take(_LAUNCHERS)
    if imported is not None:  # with what the program imports
        _order_ranks(imported.SubprocessHandler, orders, slice_ns)
        return

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
            if name != _LAUNCHERS:
                return None
            sys.meta_path.remove(self)
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            if spec is not None and spec.loader is not None:
                load = spec.loader.exec_module

                def exec_module(module: Any) -> None:
                    load(module)
                    _order_ranks(module.SubprocessHandler, orders, slice_ns)

                spec.loader.exec_module = exec_module  # type: ignore[method-assign]
            return spec

    sys.meta_path.insert(0, Finder())


def _order_ranks(handler: Any, orders: int, slice_ns: int) -> None:
    start = handler._popen

    def popen(own: Any, args: Sequence[str], env: Mapping[str, str]) -> Any:
        if args[0] != sys.executable or not can_fork(args):
            return start(own, args, env)
        given = vars(own)
        files = [0] + [
            number if given[name] is None else given[name].fileno()
            for number, name in ((1, "_stdout"), (2, "_stderr"))
        ]
        try:
            return order(orders, args, env, files, slice_ns)
        except ConnectionError:
            return start(own, args, env)

    handler._popen = popen


def _run(args: Sequence[str]) -> None:
    """The program, as Python runs a script or a module."""
    words = list(args[1:])
    if words[0] == "-u":
        words = words[1:]
    sys.orig_argv[:] = list(args)
    safe = getattr(sys.flags, "safe_path", False)
    main = types.ModuleType("__main__")
    vars(main).update(__builtins__=__builtins__)
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:
        sys.modules["__mp_main__"] = main
    if words[0] == "-m":
        sys.argv[:] = ["-m", *words[2:]]
        if not safe:
            sys.path.insert(0, os.getcwd())
        import runpy

        vars(runpy)["_run_module_as_main"](words[1])  # what `python -m` calls
        return
    path = os.path.join(os.getcwd(), words[0])  # as Python has it, from 3.9 on
    sys.argv[:] = words
    if not safe:
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    vars(main).update(__file__=path, __loader__=loader, __spec__=None, __cached__=None)
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, vars(main))


def _run_and_end(args: Sequence[str], inherited: Collection[int]) -> None:
    code = 0
    try:
        _run(args)
    except SystemExit as end:
        if isinstance(end.code, int):
            code = end.code
        elif end.code is not None:
            print(end.code, file=sys.stderr)
            code = 1
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        code = 1
    _end(code, inherited)


def _end(code: int, inherited: Collection[int]) -> None:
    """End as Python does, but leave as it is what the modules `inherited` (by id) hold, and what
    libraries would free: to free all of that is to write to, and so copy, all of its memory, half
    of what a small run takes. Returns never, or raises SystemExit where threads go on that only
    Python's own end stops."""
    vars(threading)["_shutdown"]()
    vars(atexit)["_run_exitfuncs"]()
    if threading.active_count() > 1:
        sys.exit(code)
    main = sys.modules["__main__"]
    own = [module for module in reversed(sys.modules.values()) if id(module) not in inherited]
    groups = sys.modules.get(_GROUPS)
    for module in (main, *own, *([] if groups is None else [groups])):
        _clear(module)
    del main, own, groups
    gc.collect()
    # By their bases: a class that is cleared by now has none, and to ask whether it is a subclass
    # is to crash.
    kind = io.IOBase.__base__
    for each in gc.get_objects():  # of what came after the fork
        if kind in (getattr(type(each), "__mro__", None) or ()) and not each.closed:
            with suppress(Exception):
                each.flush()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except (OSError, ValueError):
        code = _CANNOT_FLUSH
    _libc.fflush(None)
    os._exit(code & 0xFF)


def _clear(module: types.ModuleType) -> None:
    """As _PyModule_Clear of CPython's Objects/moduleobject.c does."""
    held = vars(module)
    private = [name for name in held if name[:1] == "_" and name[1:2] != "_"]
    for name in (*private, *[each for each in held if each != "__builtins__"]):
        held[name] = None


def _give_up(error: BaseException) -> NoReturn:
    os.write(2, f"cannot start a rank: {error!r}\n".encode())
    os._exit(127)


def main(before: set[str]) -> None:
    """The server; returns in no process."""
    own, further, *program = sys.argv[1:]
    sys.path.pop(0)  # this directory is on PYTHONPATH as well, and gone by now
    said, writes = os.memfd_create("said"), os.dup(2)
    os.dup2(said, 2)
    gc.disable()
    shelf = _import_once(before, "".join(program[:1]), program[1:])
    inherited = {id(module) for module in (*sys.modules.values(), *shelf.modules())}
    gc.collect()
    gc.freeze()  # the collector would write to, and so copy, every inherited page
    gc.enable()
    os.dup2(writes, 2)
    os.close(writes)
    text = os.pread(said, _MESSAGE_BYTES, 0)
    os.close(said)
    sys.meta_path.insert(0, shelf)
    orders = socket.socket(fileno=int(own))
    orders.send(b"ready")
    told = _Server(orders).serve()
    try:
        _become(told)
        _renew(shelf)
        if text:
            os.write(2, text)
        _watch_launcher(shelf, int(further), told["slice_ns"])
    except BaseException as error:
        _give_up(error)
    _run_and_end(told["args"], inherited)


if __name__ == "__main__":
    _BEFORE = set(sys.modules) - {"array", "select"}
    main(_BEFORE)
