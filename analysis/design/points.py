"""All points of a design: every combination of what is chosen from lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from analysis.design.models.host import Host
from analysis.design.models.listed_work import work_of_layers, work_of_operations
from analysis.design.models.recommender import work_of_recommender
from analysis.design.models.transformer import work_of_transformer
from analysis.design.network import Dimension, dimension_of, network_cost
from analysis.design.point import Point, Strategy, Work
from topologies.spec.design.document import DesignSection, DesignSections
from topologies.spec.design.models import (
    ClosedModel,
    HostSection,
    RecommenderModel,
    TransformerModel,
)
from topologies.spec.layers_section import LayersWorkload
from topologies.spec.workload_section import CollectivesWorkload
from topologies.units import format_bandwidth, format_flops, format_size

_GB = 1e9


def points_of(sections: DesignSections) -> Iterator[Point]:
    """Every combination, in the order of the file's lists. Degrees whose product is not the ranks,
    and sizes whose product is not a listed workload's, are left out."""
    design, workload = sections.design, sections.workload
    wanted = None if isinstance(workload, ClosedModel) else workload.ranks
    for dimensions, of_network in _networks(design):
        ranks = prod(dimension.size for dimension in dimensions)
        if wanted not in (None, ranks):
            continue
        if not isinstance(workload, ClosedModel):
            yield Point(dimensions, chosen=of_network)
            continue
        for host, of_host in _hosts(design.host):
            before = of_network | of_host
            if isinstance(workload, RecommenderModel):
                yield Point(dimensions, host, chosen=before)
                continue
            for strategy in _strategies(design, ranks):
                chosen = before | {"strategy": str(strategy)}
                yield Point(dimensions, host, strategy, chosen)


def work_of(sections: DesignSections, point: Point) -> Work | None:
    """The needs of a point's iteration; None when its degrees do not divide what they must."""
    match sections.workload:
        case CollectivesWorkload() as workload:
            return work_of_operations(workload, point.dimensions)
        case LayersWorkload() as workload:
            return work_of_layers(workload, point.dimensions)
        case TransformerModel() as model:
            assert point.strategy is not None and point.host is not None
            return work_of_transformer(model, point.strategy, point.host, point.dimensions)
        case RecommenderModel() as model:
            assert point.host is not None
            return work_of_recommender(model, point.host, point.dimensions)


def host_cost(sections: DesignSections, point: Point) -> float:
    """Dollars of all hosts; 0 where the model has none."""
    prices, host = sections.design.prices, point.host
    if host is None:
        return point.ranks * prices.host
    efficiency = sections.design.host.efficiency
    each = (
        prices.host
        + prices.tflops * host.flops_per_ns / efficiency / 1e3
        + prices.memory_gb * host.memory_bytes / _GB
        + prices.memory_gbytes_per_s * host.memory_gbytes_per_s / efficiency
        + prices.expansion_gb * host.expansion_bytes / _GB
    )
    return point.ranks * each


def point_cost(sections: DesignSections, point: Point, gbytes_per_s: Sequence[float]) -> float:
    """Dollars of hosts and network, with these bandwidths."""
    return host_cost(sections, point) + network_cost(point.dimensions, gbytes_per_s)


def _networks(design: DesignSection) -> Iterator[tuple[tuple[Dimension, ...], dict[str, str]]]:
    sections = design.dimensions
    choices = [
        list(product(one.size, one.links or (None,), one.buffer_bytes or (None,)))
        for one in sections
    ]
    for combination in product(*choices):
        dimensions, chosen = [], {}
        for section, (size, links, buffer_bytes) in zip(sections, combination, strict=True):
            dimensions.append(dimension_of(section, size, links, buffer_bytes, design.prices))
            if len(section.size) > 1:
                chosen[f"{section.name} size"] = str(size)
            if links is not None and len(section.links or ()) > 1:
                chosen[f"{section.name} links"] = str(links)
            if buffer_bytes is not None and len(section.buffer_bytes or ()) > 1:
                chosen[f"{section.name} buffer"] = format_size(buffer_bytes)
        yield tuple(dimensions), chosen


def _hosts(section: HostSection) -> Iterator[tuple[Host, dict[str, str]]]:
    share = section.efficiency
    speeds = section.expansion_bytes_per_s or (0,)
    lists = (
        section.flops_per_s,
        section.memory_bytes,
        section.memory_bytes_per_s,
        section.expansion_bytes,
        speeds,
    )
    for flops, memory, bandwidth, expansion, speed in product(*lists):
        if not expansion and speed != speeds[0]:
            continue
        host = Host(
            flops / _GB * share,
            float(memory),
            bandwidth / _GB * share,
            float(expansion),
            speed / _GB * share,
        )
        told = {
            "compute": (len(section.flops_per_s), format_flops(flops)),
            "memory": (len(section.memory_bytes), format_size(memory)),
            "memory bandwidth": (len(section.memory_bytes_per_s), format_bandwidth(bandwidth)),
            "expansion": (len(section.expansion_bytes), format_size(expansion)),
            "expansion bandwidth": (len(speeds) if expansion else 0, format_bandwidth(speed)),
        }
        yield host, {name: text for name, (number, text) in told.items() if number > 1}


def _strategies(design: DesignSection, ranks: int) -> Iterator[Strategy]:
    section = design.strategy
    tensors = section.tensor
    if tensors == "all":
        tensors = tuple(2**i for i in range(ranks.bit_length()))
    for tensor, pipeline, microbatches, zero in product(
        tensors, section.pipeline, section.microbatches, section.zero
    ):
        if ranks % (tensor * pipeline) == 0:
            data = ranks // (tensor * pipeline)
            if section.data != "all" and data not in section.data:
                continue
            yield Strategy(data, tensor, pipeline, microbatches, zero)
