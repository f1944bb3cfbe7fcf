"""MPTCP, sockets of several subflows, in a spec."""
