"""Packets of Linux's TCP through the ports of a fabric, one by one."""
