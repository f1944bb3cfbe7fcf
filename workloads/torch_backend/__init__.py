"""The torch.distributed backend "groundwire": any script's collectives, as programs over Gloo.

    dist.init_process_group("groundwire")

torch registers it by itself, as the entry point `torch.backends` of the installed package; without
that, importing this package does. What runs how is in GROUNDWIRE_COLLECTIVES (`configuration`).
"""

from __future__ import annotations

from workloads.torch_backend.registration import register

register()
