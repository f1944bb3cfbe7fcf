"""Many cases of one experiment: which factor matters how much, and which case is best.

It runs no case: `groundwire/studies` does. Three names to know: `StudyCases` (factors, cases and
responses), `Effects` and `Variance`.
"""
