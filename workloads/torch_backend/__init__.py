"""The torch.distributed backend "groundwire": any script's collectives, as programs over Gloo.

    dist.init_process_group("groundwire")

torch registers it by itself, as the entry point `torch.backends` of the installed package; without
that, importing this package does. GROUNDWIRE_COLLECTIVES says what runs how (`configuration`). It
writes no program: `collectives.algorithms` does. Three names to know: `GroundwireGroup`,
`from_environment` (the settings of a process) and `LoggedProgram`.
"""

from __future__ import annotations

from workloads.torch_backend.registration import register

register()
