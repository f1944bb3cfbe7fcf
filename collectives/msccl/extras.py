"""Properties of a program that MSCCL's format has no place for, as attributes that MSCCL passes
over.

MSCCL wants one peer per thread block, so that a sequence with several peers is written as several
thread blocks. `at` says which sequence and place a step has, `after` what it waits for, `phase`
what it belongs to; `algo` has the window, the division and the phases.
"""

from __future__ import annotations

from dataclasses import replace

from collectives.kinds import Kind
from collectives.msccl.elements import Element
from collectives.program import At, Division, Phase, Program, Sequence, Step


def of_program(program: Program) -> dict[str, str]:
    """Attributes of `algo`."""
    found = {"division": str(program.division), "root": str(program.root)}
    if program.window is not None:
        found["window"] = str(program.window)
    return found


def of_phase(phase: Phase) -> dict[str, str]:
    """Attributes of a `phase` element."""
    found = {"name": phase.name}
    if phase.kind is not None:
        found["kind"] = str(phase.kind)
    if phase.dimension is not None:
        found["dimension"] = str(phase.dimension)
    return found


def of_step(at: At, step: Step) -> dict[str, str]:
    """Attributes of a `step`."""
    found = {"at": _text(at), "phase": str(step.phase)}
    if step.after:
        found["after"] = " ".join(_text(other) for other in step.after)
    return found


def annotated(root: Element) -> bool:
    """Whether a file has them."""
    return "division" in root.attributes


def restored(program: Program, root: Element, lines: list[list[list[Element]]]) -> Program:
    """The program that was written. `program` has a sequence per thread block, and `lines` the
    element of each of its steps. Raises MscclError."""
    participants = []
    for sequences, elements in zip(program.participants, lines, strict=True):
        found: dict[At, tuple[int, Step]] = {}
        for sequence, origins in zip(sequences, elements, strict=True):
            for step, element in zip(sequence.steps, origins, strict=True):
                at = _at(element, element.text("at"))
                if at in found:
                    raise element.wrong(f'a second step at="{_text(at)}"', "one of each")
                after = tuple(
                    _at(element, one) for one in element.attributes.get("after", "").split()
                )
                phase = element.number("phase", 0)
                found[at] = sequence.channel, replace(step, after=after, phase=phase)
        participants.append(_sequences(root, found))
    phases = tuple(_phase(element) for element in root.named("phase"))
    window = root.number("window", 1) if "window" in root.attributes else None
    return replace(
        program,
        participants=tuple(participants),
        phases=phases,
        window=window,
        division=Division(root.text("division", tuple(Division))),
    )


def _sequences(root: Element, found: dict[At, tuple[int, Step]]) -> tuple[Sequence, ...]:
    sequences: list[tuple[int, list[Step]]] = []
    for at, (channel, step) in sorted(found.items()):
        if at.sequence == len(sequences):
            sequences.append((channel, []))
        if at.sequence != len(sequences) - 1 or at.place != len(sequences[-1][1]):
            raise root.wrong(f'steps up to at="{_text(at)}" with gaps', "places without gaps")
        sequences[-1][1].append(step)
    return tuple(Sequence(channel, tuple(steps)) for channel, steps in sequences)


def _phase(element: Element) -> Phase:
    kind = Kind(element.text("kind", tuple(Kind))) if "kind" in element.attributes else None
    dimension = element.number("dimension", 0) if "dimension" in element.attributes else None
    return Phase(element.text("name"), kind, dimension)


def _text(at: At) -> str:
    return f"{at.sequence}.{at.place}"


def _at(element: Element, text: str) -> At:
    sequence, _, place = text.partition(".")
    if not (sequence.isdecimal() and place.isdecimal()):
        raise element.wrong(f'"{text}"', "SEQUENCE.PLACE")
    return At(int(sequence), int(place))
