"""MRC, a multipath reliable connection, in a spec."""
