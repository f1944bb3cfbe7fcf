"""Netlink's messages: formats by pyroute2, filled in bulk.

pyroute2 encodes a message in about 50 us of Python, and a k=16 fat-tree needs 30,000 of them before
its first packet. So pyroute2 encodes each shape of a message once (`links.py`, `queues.py`). It is
kept with blanks where values go (`formats.py`, a generated file) and filled in a microsecond
(`template.py`). `additions.py` declares what pyroute2 lacks, in pyroute2's own classes.
"""
