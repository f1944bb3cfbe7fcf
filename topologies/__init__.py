"""What a fabric is: spec language, builders, routing, ECMP, placement."""
