"""The work of ranks: `models` has it as pure data, `execution` does it with torch.

`observer` goes into programs of users and logs their collectives; `torch_backend` runs a script's
collectives as programs. It knows no kernel: `emulator` starts ranks. Three names to know: `Action`
(what a rank does next, `models/step.py`), `Communicator` (a group of ranks that posts collectives,
`execution/communicator.py`) and `EventLog` (what a rank writes, `execution/events.py`).
"""
