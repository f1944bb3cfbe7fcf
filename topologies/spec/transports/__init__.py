"""Transports: how messages of ranks travel. This package has what a spec says of each.

A transport is registered once, below, by the name that a spec gives as `transport.kind`. Each room
has its part of it in a module of that name, as imports go down only:

    topologies/spec/transports/KIND/section.py     its keys, and what follows from them
    topologies/spec/transports/KIND/checks.py      its disagreements with the rest of a spec
    workloads/execution/transports/KIND.py         the ends between which ranks send
    emulator/transports/KIND.py                    its set-up in a kernel, and its memory
    analysis/decode/transports/KIND.py             its bytes in captures
    analysis/predict/transports/KIND.py            its bytes on links, and its part of simulators

It is not where packets are queued: ports have queue disciplines. Three names to know: `TRANSPORTS`,
`TransportSection` and `TcpTransport`, which hosts have beside any other.
docs/howto/add-a-transport.md adds one.
"""

TRANSPORTS = ("tcp", "roce", "udp", "mrc", "mptcp")
"""The registration of transports."""
