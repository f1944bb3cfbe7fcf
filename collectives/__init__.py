"""What a collective is: the kinds, and the programs that algorithms write for them.

`kinds` is the table of kinds, `call` one call of them. `program` says what a program is, `builder`
writes one, `waits` has the rules for what waits for what, `verify` proves it right. `algorithms`
are the ways to write one; Gloo's own are in `gloo`. `msccl` reads and writes MSCCL files. `plan`
cuts a collective into chunks; `themis` and `turns` order their dimensions; `settings` says what a
spec asks for. Pure: imports `topologies` and numpy at most.
"""

import collectives.spec_checks  # noqa: F401  (registers what this room checks of a spec)
