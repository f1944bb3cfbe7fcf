"""RDMA over the ports of a fabric: devices, and programs that poll them."""
