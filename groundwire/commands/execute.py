"""`groundwire exec`: a program of the user's own as the ranks of a run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from emulator.ranks.mpi.launch import LAUNCHERS
from emulator.ranks.script import script_importing
from emulator.session import Stop
from groundwire.commands.console.overrides import parse_overrides
from groundwire.commands.console.report_style import ReportStyle
from groundwire.commands.console.shell import Shell
from groundwire.commands.run import (
    CustomOption,
    ForceOption,
    HangOption,
    JsonOption,
    KernelChoice,
    KernelOption,
    LiveOption,
    OutOption,
    SetOption,
    StallOption,
    StyleOption,
    TopoOption,
    fabric_in_place,
    run_and_print,
)
from topologies.ethernet import ETHERNET_HEADER_BYTES
from topologies.spec.spec import Spec, load_spec
from topologies.units import parse_time_ns

_TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")


class NetworkChoice(StrEnum):
    """`--network`."""

    emulated = "emulated"
    simulated = "simulated"


class ExecRefused(ValueError):
    """Options that do not go together, or that say nothing."""


class Per(StrEnum):
    """`--per`."""

    auto = "auto"
    rank = "rank"
    host = "host"
    job = "job"


def execute(
    spec_path: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC", help="The spec whose fabric to run on, in place of its workload."
        ),
    ],
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- PROGRAM ARG",
            help="The program to run, as in a shell. All that follows PROGRAM is its own.",
        ),
    ],
    ranks: Annotated[
        int | None,
        typer.Option(
            "--ranks",
            "-n",
            metavar="N",
            help="World size (default: all hosts of the fabric).",
        ),
    ] = None,
    ranks_per_host: Annotated[
        int,
        typer.Option(metavar="G", min=1, help="How many ranks share a host, as GPUs of a server."),
    ] = 1,
    per: Annotated[
        Per,
        typer.Option(
            help="Start PROGRAM once per rank, or once per host, where it starts the host's ranks "
            "itself, as torchrun does, or once for the job, as mpirun. auto: by the program's name."
        ),
    ] = Per.auto,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-x",
            metavar="NAME[=VALUE]",
            help="A variable for PROGRAM's environment; without a value, yours. Can be repeated.",
        ),
    ] = None,
    observe: Annotated[
        bool,
        typer.Option(
            "--observe/--no-observe",
            help="Have Python ranks log torch's collectives, without a change of the program; "
            "else they are found in the captures.",
        ),
    ] = True,
    charge: Annotated[
        bool,
        typer.Option(
            "--charge",
            help="Have what the ranks' torch computes take the time of the spec's compute section: "
            "a device's roofline. Virtual kernel only; else computing takes no virtual time.",
        ),
    ] = False,
    charge_by: Annotated[
        Path | None,
        typer.Option(
            metavar="TRACE",
            help="As --charge, by a trace of PyTorch's profiler with recorded shapes, or a table "
            "of kernels (.csv): operations take the times that they took there, others the "
            "device's roofline. With --gpus-per-host, the kernels of virtual GPUs do.",
        ),
    ] = None,
    gpus_per_host: Annotated[
        int | None,
        typer.Option(
            metavar="G",
            min=1,
            help="Virtual GPUs: torch finds G of them on each host, for scripts that say cuda and "
            "nccl; on a fabric of rails, those of a server. Virtual kernel only.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The GPU: v100, a100, h100; as --set compute.device."),
    ] = None,
    contents: Annotated[
        str | None,
        typer.Option(
            metavar="small|full",
            help="Which tensors a virtual GPU computes: those that steer a program, or all; as "
            "--set compute.contents.",
        ),
    ] = None,
    network: Annotated[
        NetworkChoice,
        typer.Option(
            help="Virtual GPUs: what carries their collectives. emulated: the guest's own network "
            "stack, packet by packet. simulated: the compiled simulator, in the same virtual time; "
            "without captures and faults, and faster by far."
        ),
    ] = NetworkChoice.emulated,
    scale_payload: Annotated[
        str,
        typer.Option(
            metavar="1/N",
            help="Virtual GPUs: send one byte in N of large messages, over links of one Nth of "
            "their rates, so that times stay about what they are and packets are fewer. The "
            "verdict, tables and notes say so.",
        ),
    ] = "1",
    tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Virtual GPUs: how many tokens an iteration of the whole job trains on, for "
            "tokens/s; as --set compute.tokens. Default: by the embeddings that ranks look up.",
        ),
    ] = None,
    tee: Annotated[
        str,
        typer.Option(
            metavar="all|N,...",
            help="Ranks whose output is shown as it comes, with the rank before each line where "
            "these are not rank 0 alone.",
        ),
    ] = "0",
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The virtual kernel's memory, such as 8GB."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --shell: when the fabric stands still, from PROGRAM's start on. Virtual "
            "kernel only.",
        ),
    ] = None,
    shell: Annotated[
        bool,
        typer.Option(
            "--shell",
            help="With --until: a shell in any host (ss, py-spy, gdb, tcpdump); lines of standard "
            "input where that is no terminal. The run goes on at its end.",
        ),
    ] = False,
    stall: StallOption = None,
    hang_after: HangOption = None,
    topo: TopoOption = None,
    custom: CustomOption = None,
    kernel: KernelOption = KernelChoice.auto,
    out: OutOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
    style: StyleOption = ReportStyle.groundwire,
    live: LiveOption = False,
    force: ForceOption = False,
) -> int:
    """Run a program of your own on a fabric: groundwire exec SPEC -- python train.py

    Every rank is a process on its host, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
    GROUP_RANK, MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME set, so that
    init_process_group("gloo") works; hosts have their names (h0, h1, ...). torchrun needs no
    options: groundwire exec SPEC -- torchrun train.py; nor does OpenMPI's mpirun.

    The program sees the current directory, and writes into `work/` of the run directory. Rank 0's
    output is shown as it comes (--tee); ranks/NNN.out and .err there have everybody's. When a rank
    fails the others are ended, and the exit code is 1. Exit code 3 says that the run is done but
    its figures are not valid.
    """
    environment = dict(_variable(text) for text in env or [])
    workload = {
        "kind": "command",
        "argv": command,
        "ranks": ranks_per_host if ranks is None else ranks,
        "ranks_per_host": ranks_per_host,
        "per": starts(per, command),
        "env": environment,
        "directory": str(Path.cwd()),
        "observe": observe,
        "charge": charge,
        "charge_by": None if charge_by is None else str(charge_by.absolute()),
        "tee": _teed(tee),
        "network": network.value,
        "scale_payload": scale_payload,
    }
    if gpus_per_host is not None:
        workload["gpus_per_host"] = gpus_per_host
        if ranks is None:
            workload["ranks"] = gpus_per_host
    else:
        options = ("--contents", contents), ("--tokens", tokens), ("--scale-payload", scale_payload)
        for name, value in options:
            if value not in (None, "1"):
                raise ExecRefused(
                    f"{name}: expected --gpus-per-host with it: it is of virtual GPUs"
                )
    fabric = fabric_in_place(topo, custom)
    overrides = parse_overrides(set_ or [])
    spec = load_program(spec_path, fabric, workload, ranks is None, overrides)
    if device is not None:
        overrides = {"compute.device": device} | overrides
    if contents is not None:
        overrides = {"compute.contents": contents} | overrides
    if tokens is not None:
        overrides = {"compute.tokens": str(tokens)} | overrides
    if hang_after is not None:
        overrides = {"hang_after": hang_after} | overrides
    if memory is not None:
        overrides = {"virtual.memory": memory} | overrides
    by_wire = workload["per"] == "job" or script_importing("jax", command, Path.cwd())
    if by_wire and "snaplen_bytes" not in spec.capture.model_fields_set:
        # Headers of messages lie anywhere in packets; of MPI's and JAX's nothing else tells.
        whole = max(link.mtu_bytes for link in spec.plan.fabric.links) + ETHERNET_HEADER_BYTES
        overrides = {"capture.snaplen": str(whole)} | overrides
    spec = spec.with_overrides(overrides, source="--set")
    stop = None
    if until is not None or shell:
        if until is None or not shell:
            raise ExecRefused("--until TIME and --shell: expected both, or none of them")
        if kernel is KernelChoice.native:
            raise ExecRefused("--until: expected the virtual kernel; no other's time stands still")
        kernel, at_ns = KernelChoice.virtual, parse_time_ns(until)
        stop = Stop(at_ns, Shell(at_ns, spec.plan.hosts[0]).look)
    return run_and_print(
        spec,
        kernel,
        out,
        as_json=as_json,
        style=style,
        stall_timeout_s=stall,
        stop=stop,
        live=live,
        force=force,
    )


def load_program(
    path: Path,
    fabric: dict[str, object],
    workload: dict[str, object],
    all_hosts: bool,
    overrides: Mapping[str, str],
) -> Spec:
    """The spec in a file with sections in place of its own, and a program for its workload: with as
    many ranks as the fabric has hosts, where it is on `all_hosts`. The `overrides` of the fabric
    are in it, as they decide how many hosts there are. Raises SpecError."""
    changed = {key: value for key, value in overrides.items() if key.split(".")[0] == "fabric"}
    if all_hosts or changed:
        # Which ranks there are is not known yet.
        each = workload.get("gpus_per_host") or workload["ranks_per_host"]
        one_host = workload | {"tee": "all", "ranks": each}
        unfit = {"placement": "linear", "faults": []}  # they may be of ranks
        least = load_spec(path, fabric | {"workload": one_host} | unfit)
        if changed:
            least = least.with_overrides(changed, source="--set")
            fabric = fabric | {"fabric": least.to_dict()["fabric"]}
        if all_hosts:
            # A virtual GPU is a host of its own where a server has several.
            together = least.workload.ranks if workload.get("gpus_per_host") is None else 1
            workload = workload | {"ranks": len(least.plan.fabric.hosts) * together}
    return load_spec(path, fabric | {"workload": workload})


def starts(per: Per, command: list[str]) -> str:
    """Whether a command is started per `rank`, per `host` or once per `job`."""
    if per is not Per.auto:
        return per.value
    # python -m torch.distributed.run, too; what comes behind the script is the script's.
    head = [Path(word).name for word in command[:4]]
    if head[0].removesuffix(".openmpi") in LAUNCHERS:
        return "job"
    starts_ranks = head[0] == _TORCHRUN[0] or (
        "-m" in head[:-1] and head[head.index("-m") + 1] in _TORCHRUN[1:]
    )
    return "host" if starts_ranks else "rank"


def _teed(text: str) -> str | list[int]:
    if text == "all":
        return text
    if re.fullmatch(r"\d+(,\d+)*", text) is None:
        raise ExecRefused(f"--tee {text}: expected all, or ranks such as 0,3")
    return [int(rank) for rank in text.split(",")]


def _variable(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
        raise ExecRefused(f"--env {text}: expected NAME=VALUE, or the NAME of a variable of yours")
    if not given and name not in os.environ:
        raise ExecRefused(f"--env {text}: your environment has no {name}; expected {name}=VALUE")
    return name, value if given else os.environ[name]
