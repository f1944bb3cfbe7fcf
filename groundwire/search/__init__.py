"""Many runs of one program under seeds, in search of one that fails; and the failure made small.

Variations are specs: what a seed varies is written as faults and settings, so that each run can be
made again from its file alone. Not here: how a run is made, and who is told of a hang (`emulator`).
"""
