"""The Linux kernel's interfaces: netlink, namespaces, eBPF, signals, and what they can do here."""
