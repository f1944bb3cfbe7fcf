"""Schedules: all that a collective puts on the wire, in one form for every reader.

A `Schedule` says which messages a collective has, between which participants, and after what each
of them begins. Five sources make schedules, and ranks, predictors, decoders, exporters and traffic
tables read them alike:

    gloo.py      the algorithms of Gloo itself           GLOO
    program.py   programs of ours, cut into chunks       ProgramSchedule
    observed.py  messages that were read off a wire      ObservedSchedule
    exchange.py  messages of one time, by Gloo's library ExchangeSchedule
    uneven.py    an all-to-all of unequal parts          UnevenAllToAll

A schedule is compiled to operations (`operations.py`), which engines run: posts, waits and marks of
each participant. It is not a run: it has no ports and no times. The three names to know are
`Schedule`, `Post` (messages in columns) and `CompiledPrograms`.
"""
