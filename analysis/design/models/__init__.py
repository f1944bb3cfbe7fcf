"""The demands of an iteration on hosts and network: models of workloads, hosts and messages."""
