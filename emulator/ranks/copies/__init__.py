"""Copies of memory between ranks of one server, in the time of the guest: which ports they take
when (`CopyPorts`), and the thread of the experiment's process that matches what ranks post, sleeps
until copies are complete, moves the data and tells the ranks (`CopyBroker`). How long a copy takes
is said in topologies/fabrics/copies.py. Ranks' ends are workloads/execution/copies/."""
