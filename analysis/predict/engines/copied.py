"""Messages that are copies of memory, as columns of the packet engine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.engines.wire import Ints
from analysis.predict.interface import Setting
from simulation.columns import Column
from topologies.fabrics.copies import NO_LINK

Bools = npt.NDArray[np.bool_]


def copied_messages(setting: Setting, joint: JointPrograms) -> Bools:
    """Whether each message is a copy: those of programs between ends in one server."""
    owners = np.array(joint.owners, dtype=np.int64)
    if setting.copies is None or not len(owners):
        return np.zeros(len(owners), dtype=bool)
    programs = [setting.copies_of(grouped.call) for grouped in joint.calls]
    ends = len(joint.ends)
    source = np.frombuffer(joint.compiled.source, dtype=np.int32).astype(np.int64)
    keys = source * ends + np.frombuffer(joint.compiled.destination, dtype=np.int32)
    pairs, numbers = np.unique(keys, return_inverse=True)
    ranks = joint.ends.tolist()
    inside = [
        setting.copied_over(ranks[pair // ends], ranks[pair % ends]) is not None
        for pair in pairs.tolist()
    ]
    found: Bools = np.array(programs, dtype=bool)[owners] & np.array(inside, dtype=bool)[numbers]
    return found


def copy_columns(
    setting: Setting, source: Ints, destination: Ints, copied: Bools
) -> dict[str, Column]:
    """The columns of copies (simulation/engine/README.md); none where nothing is copied. By pair,
    the ranks and whether its messages are copies."""
    paths = setting.copies
    if paths is None or not copied.any():
        return {}
    links = np.full((2, len(source)), NO_LINK, dtype=np.int32)
    for pair in np.flatnonzero(copied).tolist():
        over = setting.copied_over(int(source[pair]), int(destination[pair]))
        assert over is not None, "a copy stays in its server"
        links[:, pair] = over
    return {
        "copy.first": links[0],
        "copy.second": links[1],
        "copy.settings": np.array([paths.rate_bps, paths.delay_ns], dtype=np.int64),
    }
