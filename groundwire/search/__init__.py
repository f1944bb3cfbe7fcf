"""Many runs of one program under seeds, in search of one that fails; and the failure made small.

Variations are specs: a seed's differences are faults and settings, so that each run can be made
again from its file alone. It makes no run and names no hang itself: `emulator` does. Three names to
know: `Search`, `variation` (the spec of a seed) and `Failure`.
"""
