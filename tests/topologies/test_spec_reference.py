"""docs/spec.md and the pages of its sections: examples load, and no key is missing from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from topologies.spec import fabric_section as fabric_spec
from topologies.spec import queue_section as queue_spec
from topologies.spec import run_sections as run_spec
from topologies.spec import workload_section as workload_spec
from topologies.spec.collectives_section import CollectivesSection
from topologies.spec.compute_section import ComputeSpec
from topologies.spec.partition import section as partition_spec
from topologies.spec.spec import Spec, parse_spec
from topologies.spec.transports.roce import section as roce_spec

_PAGES = sorted((Path(__file__).parents[2] / "docs").glob("spec*.md"))
REFERENCE = "\n".join(page.read_text() for page in _PAGES)
EXAMPLES = re.findall(r"```yaml\n(.*?)```", REFERENCE, re.DOTALL)
UNIONS = (
    fabric_spec.FabricSpec,
    queue_spec.QueueSpec,
    run_spec.FaultSpec,
    workload_spec.Operation,
    workload_spec.WorkloadSpec,
)
SECTIONS: list[type[BaseModel]] = [
    *(model for union in UNIONS for model in get_args(get_args(union)[0])),
    *(fabric_spec.LinkSpec, fabric_spec.GraphNodeSpec, fabric_spec.GraphLinkSpec),
    *run_spec.TRANSPORT_SECTIONS.values(),
    *(roce_spec.Dcqcn, roce_spec.Timely, roce_spec.Hpcc),
    *(run_spec.CaptureSpec, run_spec.CountersSpec, run_spec.VirtualSpec),
    *(workload_spec.Parallelism, CollectivesSection, ComputeSpec, Spec),
    *(partition_spec.PartitionSpec, *get_args(partition_spec.NetworkSpec)),
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_valid(example: str) -> None:
    text = example if example.startswith("name") else f"name: example\n{example}"
    spec = parse_spec(text)
    assert parse_spec(spec.to_yaml()) == spec


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_key_is_in_the_reference(section: type[BaseModel]) -> None:
    words = set(re.findall(r"[A-Za-z_]+", REFERENCE))
    keys = {field.alias or name for name, field in section.model_fields.items()}
    assert keys <= words
    kinds = get_args(section.model_fields["kind"].annotation) if "kind" in keys else ()
    assert all(kind in REFERENCE for kind in kinds)
