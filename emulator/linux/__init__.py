"""The Linux kernel's interfaces: netlink, namespaces, eBPF, signals, and what they can do here.

It knows no fabric. Formats of messages are pyroute2's (`messages/`); requests go out in batches,
and a refusal raises with the kernel's own words. Three names to know: `NetlinkSocket`, `entered` (a
namespace, for a block) and `KernelCapabilities`.
"""
