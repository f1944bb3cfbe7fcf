"""Launches of Triton's kernels: each is a kernel of the device, with a time of its own.

Nothing is compiled, as there is no GPU to compile for. A kernel takes the time of a table
(`triton::NAME`), or that of reading and writing the memory of its tensors once. The tensors that it
writes have no contents then; which these are, its source tells.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

_MODULES = ("tl", "triton", "libdevice", "tldevice", "math")
_MAKES_POINTERS = ("make_block_ptr", "advance", "cast", "to", "make_tensor_descriptor")
_WRITES = ("store", "store_tensor_descriptor")


class NoContents(RuntimeError):
    """A kernel of Triton where all contents are to be computed."""


def complete_jit(gpu: Any, plan: Mapping[str, Any]) -> Any:
    """For `triton.runtime.jit`, when it has been imported."""

    def complete(module: Any) -> None:
        known: dict[Any, frozenset[str] | None] = {}

        def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **options: Any) -> None:
            if warmup:
                return
            name = getattr(kernel, "__name__", type(kernel).__name__)
            if plan["contents"] == "full":
                raise NoContents(
                    f"Triton's kernel {name}: a virtual GPU does not compute its contents; "
                    "TRITON_INTERPRET=1 has Triton do it, contents: small does without"
                )
            own = {key: value for key, value in options.items() if key in kernel.arg_names}
            given = kernel.signature.bind(*args, **own)
            given.apply_defaults()
            if callable(grid):
                grid(given.arguments)
            if kernel not in known:
                known[kernel] = written_by(getattr(kernel, "src", ""))
            written = known[kernel]
            tensors = {
                key: value for key, value in given.arguments.items() if hasattr(value, "is_cuda")
            }
            for place, (key, tensor) in enumerate(tensors.items()):
                if not tensor.is_cuda:
                    raise ValueError(
                        f"Pointer argument (at {place}) cannot be accessed from Triton "
                        f"(cpu tensor?): {key} of {name}"
                    )
            changes = {key for key in tensors if written is None or key in written}
            gpu.launch(
                f"triton::{name}",
                [tensor for key, tensor in tensors.items() if key not in changes],
                [tensor for key, tensor in tensors.items() if key in changes],
            )

        module.JITFunction.run = run

    return complete


def complete_autotuner(module: Any) -> None:
    """For `triton.runtime.autotuner`: nothing is tuned; the first configuration is taken."""

    def run(tuner: Any, *args: Any, **options: Any) -> Any:
        chosen = tuner.configs[0]
        return tuner.fn.run(*args, **(options | chosen.all_kwargs()))

    module.Autotuner.run = run


def written_by(source: str) -> frozenset[str] | None:
    """The parameters that a kernel's source writes through, by `tl.store` and atomics; None where
    that cannot be told, as where it hands them to another function."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return None
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    if len(functions) != 1:
        return None
    body = functions[0]
    behind = {each.arg: frozenset((each.arg,)) for each in (*body.args.args, *body.args.kwonlyargs)}
    while True:
        before = dict(behind)
        for node in ast.walk(body):
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
                targets = [node.target]
            if targets and (value := getattr(node, "value", None)) is not None:
                pointed = _pointers(value, behind)
                for name in _names(targets):
                    behind[name] = behind.get(name, frozenset()) | pointed
        if behind == before:
            break
    written: set[str] = set()
    for node in ast.walk(body):
        if not isinstance(node, ast.Call):
            continue
        _, name = _called(node.func)
        pointed = frozenset().union(*(_pointers(each, behind) for each in node.args))
        if name in _WRITES or name.startswith("atomic_"):
            if node.args:
                written |= _pointers(node.args[0], behind)
            if isinstance(node.func, ast.Attribute):  # a descriptor's own store
                written |= _pointers(node.func.value, behind)
        elif isinstance(node.func, ast.Name) and any(_is_plain(each) for each in node.args):
            written |= pointed  # another kernel's function, which may write
    return frozenset(written)


def _names(targets: Iterable[ast.expr]) -> Iterable[str]:
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                yield node.id


def _called(function: ast.expr) -> tuple[str, str]:
    """`tl.store` as ("tl", "store")."""
    name = function.attr if isinstance(function, ast.Attribute) else ""
    while isinstance(function, ast.Attribute):
        function = function.value
    root = function.id if isinstance(function, ast.Name) else ""
    return root, name or root


def _is_plain(argument: ast.expr) -> bool:
    """Whether an argument may be a pointer: a name, or one with an offset."""
    return isinstance(argument, (ast.Name, ast.BinOp))


def _pointers(value: ast.expr, behind: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The parameters from which a value may point on; a value that is loaded is no pointer."""
    if isinstance(value, ast.Name):
        return behind.get(value.id, frozenset())
    if isinstance(value, ast.Call):
        root, name = _called(value.func)
        if root in _MODULES and name not in _MAKES_POINTERS:
            return frozenset()
    found: frozenset[str] = frozenset()
    for child in ast.iter_child_nodes(value):
        if isinstance(child, ast.expr):
            found |= _pointers(child, behind)
        elif isinstance(child, ast.keyword):
            found |= _pointers(child.value, behind)
    return found
