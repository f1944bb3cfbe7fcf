"""What an iteration asks of hosts and network: models of workloads, hosts and messages."""
