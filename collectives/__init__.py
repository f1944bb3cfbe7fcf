"""Collectives: the kinds, and the messages that each call of one puts on the wire.

`kinds` is the table of kinds, `call` one call of them, and `schedule` what a call sends, in one
form for all readers. `program` says what a program is, `builder` writes one, `waits` has the rules
for what waits for what, `verify` proves it right. `algorithms` are the ways to write one. `msccl`
reads and writes MSCCL files. `chunking` cuts a collective into chunks; `themis` and `turns` order
their dimensions; `settings` says what a spec asks for. It moves no byte and needs no torch: ranks
execute what is here, and simulators follow it. Three names to know: `CollectiveCall`, `Schedule`
(what a call sends, after what) and `Program`.
"""
