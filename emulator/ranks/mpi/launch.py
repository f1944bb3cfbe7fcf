"""The files and variables by which `mpirun` finds the hosts of a job, and the switches that do its
collectives."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from emulator.linux.namespaces import HostPlace
from emulator.virtual.building.library import compiled_library

LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun", "oshrun", "shmemrun")
_ROOT = Path(__file__).resolve().parents[3]
_LIBRARY = _ROOT / "workloads" / "mpi" / "collectives.c"
_RANK_END = _LIBRARY.with_name("rank_end.py")
_EVERY_ADDRESS = "10.0.0.0/8"


def write_mpi_files(
    directory: Path,
    hosts: Sequence[str],
    slots: int,
    places: Mapping[str, HostPlace],
    interfaces: Mapping[str, str],
    working_directory: Path,
) -> None:
    """The `hosts` of ranks with their slots, in order of ranks; and the agent that gets a command
    to one of them, with what it has to know. Raises OSError."""
    directory.mkdir()
    distinct = tuple(dict.fromkeys(hosts))
    _hostfile(directory).write_text("".join(f"{host} slots={slots}\n" for host in distinct))
    _machinefile(directory).write_text("".join(f"{host}:{slots}\n" for host in distinct))
    known = {
        host: {
            "netns": str(places[host].netns),
            "ipc": str(places[host].ipc),
            "covers": {str(path): str(by) for path, by in places[host].covers.items()},
            "interface": interfaces[host],
        }
        for host in distinct
    }
    table = _table(directory)
    words = {"hosts": known, "ranks": list(hosts), "directory": str(working_directory)}
    table.write_text(json.dumps(words))
    code = (
        f"import sys; sys.path.insert(0, {str(_ROOT)!r}); "
        f"from emulator.ranks.mpi.agent import main; main({str(table)!r})"
    )
    agent = _agent(directory)
    # -I: nothing of the program's own variables for Python, such as the observer's.
    agent.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-I", "-c", code])} "$@"\n')
    agent.chmod(0o755)


def mpi_variables(directory: Path) -> dict[str, str]:
    """Variables that tell OpenMPI of these files (release 4 reads OMPI_MCA_, 5 PRTE_MCA_ for its
    daemons), and MPICH (HYDRA_).

    Messages go by TCP over the fabric, and by shared memory within a host.
    """
    agent, hostfile = str(_agent(directory)), str(_hostfile(directory))
    return {
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_orte_default_hostfile": hostfile,
        "OMPI_MCA_orte_tmpdir_base": "/tmp",
        "OMPI_MCA_oob_tcp_if_include": _EVERY_ADDRESS,
        "OMPI_MCA_btl_tcp_if_include": _EVERY_ADDRESS,
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,vader,tcp",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        # OpenSHMEM's memory has one address in all processes. By default a guest's kernel is there.
        "OMPI_MCA_sshmem_base_start_address": "0x6000000000",
        # A hook of UCX's that outlives its library ends every program of oshrun by a signal.
        "OMPI_MCA_opal_common_ucx_opal_mem_hooks": "0",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": agent,
        "HYDRA_HOST_FILE": str(_machinefile(directory)),
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_prte_default_hostfile": hostfile,
        "PRTE_MCA_oob_tcp_if_include": _EVERY_ADDRESS,
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


@cache
def switches_library() -> Path:
    """The library by which switches do collectives of OpenMPI's ranks, compiled when it is absent.
    Raises VirtualKernelError: it cannot be compiled."""
    uses = "switches that do MPI's collectives need"
    return compiled_library(_LIBRARY, "-ldl", folder="mpi", needed_by=uses)


def switches_variables(directory: Path, kinds: Iterable[str]) -> dict[str, str]:
    """Variables that tell `switches_library` which collectives are the switches', and what is to
    run beside each rank."""
    command = (sys.executable, str(_RANK_END), str(_table(directory)))
    return {"GROUNDWIRE_MPI": "\n".join(command), "GROUNDWIRE_MPI_KINDS": ",".join(kinds)}


def _table(directory: Path) -> Path:
    return directory / "hosts.json"


def _agent(directory: Path) -> Path:
    return directory / "agent"


def _machinefile(directory: Path) -> Path:
    return directory / "machinefile"


def _hostfile(directory: Path) -> Path:
    return directory / "hostfile"
