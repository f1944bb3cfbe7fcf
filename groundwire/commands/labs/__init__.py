"""`groundwire lab`: labs started, run and graded."""
