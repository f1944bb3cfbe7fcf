"""A fabric as data: spec language, builders, routing, ECMP, placement."""
