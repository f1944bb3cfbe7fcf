"""Process 1 of the guest: mounts what a Linux system has, runs one command, reports, powers off.

`boot` copies this file beside a `guest.json` and starts it with the bare interpreter (-I -S), so
it uses the standard library only and imports nothing of Groundwire.

Output goes to files on the host that are flushed after each chunk, not to a terminal: the host's
reading speed then never interrupts the guest, which would make runs differ.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import Any

_MS_RDONLY, _MS_NOSUID, _MNT_DETACH = 1, 2, 2
_MS_BIND_ALL = 4096 | 16384  # MS_BIND | MS_REC
_PR_SET_TIMERSLACK = 29
_NR_SCHED_SETATTR = 314
_RB_POWER_OFF = 0x4321FEDC
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_SYNC_FILE_RANGE_ALL = 7  # wait before, write, wait after
# Directories of the host that the guest replaces by its own, in mounting order.
_OWN_MOUNTS = (
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("tmpfs", "/dev/shm", "size=100%"),
    ("devpts", "/dev/pts", "mode=620,ptmxmode=666"),
    ("tmpfs", "/run", ""),
    ("tmpfs", "/tmp", "size=100%"),
)
_NO_LIMIT_PAGES = str(2**30)  # 4 TiB
# Linux derives these from how much memory there is, or is free. Results must not depend on a
# guest's memory. `boot` sizes the kernel's tables.
_MEMORY_INDEPENDENT_SYSCTLS = {
    # All hosts of a fabric share this kernel and its one budget for the buffers of sockets, of
    # which real hosts have one each. With less than what is asked for, an all-to-all of 64 MB over
    # 16 ranks stalled for 36 ms; a guest whose memory is not enough for it ends instead.
    "net/ipv4/tcp_mem": " ".join([_NO_LIMIT_PAGES] * 3),
    "net/ipv4/udp_mem": " ".join([_NO_LIMIT_PAGES] * 3),
    # As real hosts have it from 768 MiB on (tcp_init in net/ipv4/tcp.c); a fabric's hosts have
    # what the spec says.
    "net/ipv4/tcp_rmem": "4096 131072 6291456",
    "net/ipv4/tcp_wmem": "4096 16384 4194304",
    # From 1.2 GiB on (inet_initpeers in net/ipv4/inetpeer.c).
    "net/ipv4/inet_peer_threshold": "65664",
    # A sender fills pieces of 32 KiB, or single pages once memory has no such pieces free (files
    # that are open fill it up). Received bytes are accounted for by the piece, and windows follow.
    "net/core/high_order_alloc_disable": "1",
    # A guest of 1 GB could not have the threads that its process numbers are enough for.
    "kernel/threads-max": "32768",
    "user/max_net_namespaces": "32768",
}
# Programs that compare time stamps with "0 = never" (iputils' ping) need some uptime.
_SETTLE_S = 10
_DEADLOCK_CHECKS = 6
_READY = b'{"event": "ready"}\n'
_PATH_BYTES = 4096
# Gloo's thread that moves payload looks every 10 ms whether it is to end, and does nothing else
# unless a segment has come (gloo/transport/tcp/loop.cc): in ranks that wait for ever it goes on.
_POLLING_THREAD = "gloo_tcp_loop"
WATCHING_THREAD = "hang-watch"
"""The name of a thread that looks now and then whether a run hangs, and does nothing else."""

_libc = ctypes.CDLL("libc.so.6", use_errno=True)


class HostFile:
    """An output file on the host; what is written is there when `write` returns."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY)

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]
        _libc.sync_file_range(self._fd, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_ALL)


def main() -> None:
    control = os.readlink("/proc/self/cwd")  # the host's proc: the directory that `boot` made
    spec = json.loads(Path(control, "guest.json").read_text())
    files = _host_files(control, "/tmp")
    # The kernel keeps every other signal from process 1; Python has a handler for this one.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        _prepare(spec)
        files[0].write(_READY)
        if spec["time_travel"]:
            time.sleep(_SETTLE_S)
        started = time.monotonic_ns()
        end = _run(spec, files)
        end["virtual_ns"] = time.monotonic_ns() - started
        end["stops"] = _stops()
    except BaseException:
        end = {"event": "failed", "message": traceback.format_exc()}
    os.sync()
    files[0].write(json.dumps(end).encode() + b"\n")


def _host_files(control: str, place: str) -> list[HostFile]:
    """Status, standard output and error of the directory `control` of the host, which is mounted at
    `place` for a moment."""
    _mount("none", "hostfs", place, 0, control)
    files = [HostFile(f"{place}/{name}") for name in ("status", "stdout", "stderr")]
    _libc.umount2(place.encode(), _MNT_DETACH)
    return files


def _stops() -> dict[str, int]:
    """How often user code has been stopped since boot, by reason: what costs wall time."""
    lines = (line.split() for line in Path("/proc/um_traps").read_text().splitlines())
    return {name: int(count) for name, count in lines}


def _prepare(spec: dict[str, Any]) -> None:
    _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # inherited by all: timers fire on their time
    for kind, target, options in _OWN_MOUNTS:
        os.makedirs(target, exist_ok=True) if target.startswith("/dev/") else None
        _mount(kind, kind, target, _MS_NOSUID if kind == "tmpfs" else 0, options)
    hidden = tuple(target + "/" for _, target, _ in _OWN_MOUNTS)
    for path in spec["readable"]:
        if path.startswith(hidden) and not os.path.exists(path):
            # A path that is there by now may be a link out of it, such as a .venv shared by clones.
            _mount_from_host(os.path.realpath(path), _MS_RDONLY)
    for path in spec["writable"]:
        _mount_from_host(path, 0)
    for name, target in (("fd", "self/fd"), ("stdin", "self/fd/0"), ("stdout", "self/fd/1"),
                         ("stderr", "self/fd/2")):  # fmt: skip
        with contextlib.suppress(FileExistsError):
            os.symlink(f"/proc/{target}", f"/dev/{name}")
    for name, text in spec["files"].items():
        os.makedirs(os.path.dirname(name), exist_ok=True)
        Path(name).write_text(text)
    socket.sethostname("groundwire")
    _interface_up("lo")
    Path("/proc/sys/vm/overcommit_memory").write_text("1")
    # Memory that runs out ends the guest. The kernel would end one process and let the one that
    # asked try again until that is gone, but as no time passes, the other never gets to run.
    Path("/proc/sys/vm/panic_on_oom").write_text("1")
    for name, value in _MEMORY_INDEPENDENT_SYSCTLS.items():
        Path("/proc/sys", name).write_text(value)
    # Freed pages go back to where they merge with their neighbours, not to a long list that hands
    # them out backwards: each run of pages is one mapping on the host, of which a process may
    # have 65,530 (vm.max_map_count).
    Path("/proc/sys/vm/percpu_pagelist_high_fraction").write_text("1000000")
    # A process of 1,024 ranks has 1,047,552 ends of connections for each of their groups.
    Path("/proc/sys/fs/nr_open").write_text(str(1 << 22))
    # Enough for most; more would be closed one by one by each of Mininet's shells (mnexec).
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 1 << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _mount_from_host(path: str, flags: int) -> None:
    os.makedirs(path, exist_ok=True)
    _mount("none", "hostfs", path, flags, path)


def _mount(source: str, kind: str, target: str, flags: int, options: str) -> None:
    arguments = [os.fsencode(text) for text in (source, target, kind)]
    if _libc.mount(*arguments, ctypes.c_ulong(flags), os.fsencode(options)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {kind} on {target}: {os.strerror(code)}")


def _interface_up(name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", name.encode(), 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(sock, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", name.encode(), flags | _IFF_UP))


def _run(spec: dict[str, Any], files: list[HostFile]) -> dict[str, Any]:
    """Run the command to its end, passing on what it prints; then end whatever it left behind.

    Where copies of this guest are to do so, `files` are those of the copy afterwards."""
    pipes = [os.pipe(), os.pipe()]
    go_read, go_write = os.pipe()
    prepared, orders = os.pipe(), os.pipe()
    given = [prepared[1], orders[0]] if spec["prepares"] else []
    command = os.fork()
    if command == 0:
        os.read(go_read, 1)
        _exec_command(spec, [*(write for _, write in pipes), *given])
    _preempt_on_wakeup()
    if spec["prepares"]:
        os.write(go_write, b"g")
        os.close(prepared[1])
        if os.read(prepared[0], 1):  # else it has ended
            if spec["requests"] is not None:
                spec, files[:] = _become_copy(spec["requests"])
            for path, target in spec["places"].items():
                _mount_from_host(path, 0)
                os.makedirs(target, exist_ok=True)
                _mount(path, "none", target, _MS_BIND_ALL, "")
            os.write(orders[1], b"g")
    outputs = files[1:]
    selector = selectors.DefaultSelector()
    for (read, write), output in zip(pipes, outputs, strict=True):
        os.close(write)
        os.set_blocking(read, False)
        selector.register(read, selectors.EVENT_READ, output)
    # Process 1 adopts orphans: a signal per ended child wakes the loop below.
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    os.set_blocking(wake_read, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    selector.register(wake_read, selectors.EVENT_READ, None)
    activity, asks = _DeadlockDetector(), spec["tells_of_hangs"]
    if not spec["prepares"]:
        os.write(go_write, b"g")
    limit_s = spec["deadlock_timeout_s"] if spec["time_travel"] else None
    while True:
        events = selector.select(limit_s / _DEADLOCK_CHECKS if limit_s else None)
        if not events and activity.is_deadlocked():
            if not asks:
                return {"event": "deadlock", "processes": _process_table()}
            # It tells which ranks wait for which, and the guest ends when it is silent once more.
            asks, activity = False, _DeadlockDetector()
            os.kill(command, signal.SIGUSR1)
        for key, _ in events:
            _copy_output(key.fd, key.data)
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                break
            if pid == command:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
                for (read, _), output in zip(pipes, outputs, strict=True):
                    _copy_output(read, output)
                return {"event": "exited", "status": os.waitstatus_to_exitcode(wait_status)}


def _become_copy(requests: int) -> tuple[dict[str, Any], list[HostFile]]:
    """Have this guest stand still, and go on in copies only, each with a spec and files of its own
    (emulator/kernel/patches/0020-um-copies-of-a-guest.patch)."""
    with open("/proc/um_copies", "r+b", buffering=0) as copies:
        copies.write(str(requests).encode())
        control = copies.read(_PATH_BYTES).decode()
    place = "/run/control"
    os.makedirs(place)
    files = _host_files(control, place)
    _mount("none", "hostfs", place, 0, control)
    spec = json.loads(Path(place, "guest.json").read_text())
    _libc.umount2(place.encode(), _MNT_DETACH)
    os.rmdir(place)
    files[0].write(_READY)
    return spec, files


def _preempt_on_wakeup() -> None:
    """Let this process preempt others when it wakes, so that it passes on the output of a process
    that computes for ever.

    No process is ever preempted for having run long, as no time passes. The scheduler (EEVDF) lets
    a waking task go first when it asks for a shorter slice and has the earlier deadline.
    """
    nice, slice_ns = -20, 100_000
    attributes = struct.pack("IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0)
    if _libc.syscall(ctypes.c_long(_NR_SCHED_SETATTR), 0, attributes, 0) != 0:
        raise OSError(ctypes.get_errno(), "sched_setattr")


def _exec_command(spec: dict[str, Any], outputs: list[int]) -> None:
    """In the forked child: turn into the command. Never returns."""
    try:
        os.setsid()
        null = os.open("/dev/null", os.O_RDONLY)
        for target, fd in enumerate([null, *outputs]):
            os.dup2(fd, target)
        os.closerange(1 + len(outputs), 64)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python
            signal.signal(ignored, signal.SIG_DFL)
        os.chdir(spec["directory"])
        os.execvpe(spec["argv"][0], spec["argv"], spec["environment"])
    except BaseException as error:
        os.write(2, f"cannot run {spec['argv'][0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _copy_output(fd: int, output: HostFile | None) -> None:
    with contextlib.suppress(BlockingIOError):
        while data := os.read(fd, 1 << 16):
            if output is not None:
                output.write(data)


class _DeadlockDetector:
    """Whether any process has run since the last check, by their counts of context switches. A
    thread that only polls counts as run when TCP has received something for it."""

    def __init__(self) -> None:
        self._still = 0
        self._last = -1

    def is_deadlocked(self) -> bool:
        """True after _DEADLOCK_CHECKS calls in a row between which nothing but process 1 ran."""
        now = sum(_switches(pid) for pid in _processes())
        self._still = self._still + 1 if now == self._last else 0
        self._last = now
        return self._still >= _DEADLOCK_CHECKS - 1


def _processes() -> list[int]:
    """Processes with a program: kernel threads (children of 2) and process 1 left out."""
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit() and name not in ("1", "2"):
            with contextlib.suppress(OSError):
                if _status(int(name)).get("PPid") != "2":
                    pids.append(int(name))
    return sorted(pids)


def _status(pid: int | str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _switches(pid: int) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            status = _status(f"{pid}/task/{task}")
            if status["Name"] == WATCHING_THREAD:
                continue
            if status["Name"] == _POLLING_THREAD:
                total += _received_segments(f"{pid}/task/{task}")
                continue
            total += int(status["voluntary_ctxt_switches"])
            total += int(status["nonvoluntary_ctxt_switches"])
    return total


def _received_segments(task: str) -> int:
    """By TCP in the network namespace of a thread (/proc/net/snmp: a line of names, then one of
    values)."""
    lines = Path(f"/proc/{task}/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(values[names.index("InSegs")])


def _process_table() -> list[str]:
    lines = []
    for pid in _processes():
        with contextlib.suppress(OSError):
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            status = _status(pid)
            command = arguments.decode(errors="replace").strip()
            lines.append(f"{pid} {status['Name']}, {status['State']}: {command[:200]}")
    return lines


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        with open("/dev/kmsg", "w") as log:
            log.write(f"guest init failed: {traceback.format_exc()}")
    finally:
        sys.stdout, sys.stderr = None, None
        _libc.reboot(ctypes.c_int(_RB_POWER_OFF))
