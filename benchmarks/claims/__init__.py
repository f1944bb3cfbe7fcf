"""Claims of the literature, put to the test: experiments, their kept figures, and the page.

`python -m benchmarks.claims` runs experiments and writes their files in benchmarks/results/claims/;
docs/claims.md is made of those. `sources/` has the claims, a module for each part of the sources.
"""
