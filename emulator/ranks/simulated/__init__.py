"""The simulated network of virtual GPUs: what their collectives exchange goes through the compiled
packet engine, in the time of the guest. It is not the fabric of namespaces and links (`network/`),
which ranks still meet over. Begin with `SimulatedNetwork`, `Broker`, `MeshesOfGroups`."""
