"""Files of NCCL_TOPO_DUMP_FILE and NCCL_GRAPH_DUMP_FILE, as NCCL writes them."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.nccl.graph import Graph

SWITCH = 'class="0x060400" link_speed="{speed} GT/s PCIe" link_width="16"'


def topology(
    gpus: int = 8,
    per_switch: int = 1,
    cpus: int = 2,
    sm: int = 90,
    links: int = 18,
    mbps: int = 400_000,
    speed: str = "32.0",
    vendor: str = "GenuineIntel",
    reversed_nics: bool = False,
) -> str:
    """A server whose GPUs share PCI switches with a NIC each, divided evenly over processors."""
    lines = ['<system version="1">']
    for cpu in range(cpus):
        lines.append(f'<cpu host_hash="0x1" numaid="{cpu}" arch="x86_64" vendor="{vendor}">')
        for first in range(cpu * gpus // cpus, (cpu + 1) * gpus // cpus, per_switch):
            lines.append(f'<pci busid="0000:{first:02x}:00.0" {SWITCH.format(speed=speed)}>')
            for gpu in range(first, first + per_switch):
                nic = gpus - 1 - gpu if reversed_nics else gpu
                own = SWITCH.format(speed=speed)
                lines += [
                    f'<pci busid="0001:{gpu:02x}:00.0" {own}>',
                    f'<gpu dev="{gpu}" sm="{sm}" rank="{gpu}" gdr="1">',
                    f'<nvlink target="fffffff:ff:ff.0" count="{links}" tclass="0x068000"/>',
                    f'</gpu></pci><pci busid="0002:{gpu:02x}:00.0" {own}><nic>',
                    f'<net name="mlx5_{nic}" dev="{nic}" speed="{mbps}" port="1" gdr="1"/>',
                    "</nic></pci>",
                ]
            lines.append("</pci>")
        lines.append("</cpu>")
    return "\n".join([*lines, "</system>"])


def graphs(found: Sequence[tuple[int, Graph]]) -> str:
    """Graphs by id, of a server whose GPUs are numbered by their positions."""
    lines = ['<graphs version="1">']
    for number, graph in found:
        lines.append(
            f'<graph id="{number}" pattern="{graph.pattern.value}" crossnic="{graph.cross_nic}" '
            f'nchannels="{graph.channels}" speedintra="{graph.bw_intra:g}" '
            f'speedinter="{graph.bw_inter:g}" latencyinter="0" '
            f'typeintra="{graph.type_intra.name}" typeinter="{graph.type_inter.name}" '
            f'samechannels="{int(graph.same_channels)}">'
        )
        for intra, inter in zip(graph.intra, graph.inter, strict=True):
            ends = [f'<net dev="{n:#x}"/>' for n in inter]
            between = [f'<gpu dev="{g:#x}" rank="{g}"/>' for g in intra]
            lines.append("<channel>" + "".join([*ends[:1], *between, *ends[1:]]) + "</channel>")
        lines.append("</graph>")
    return "\n".join([*lines, "</graphs>"])
