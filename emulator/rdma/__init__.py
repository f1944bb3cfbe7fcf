"""RDMA over the ports of a fabric: devices, and programs that poll them.

It is no transport of ranks (`emulator/transports/roce`): programs of users need it, too. Three
names to know: `verbs_library`, `polling_library` and `read_rates`.
"""
