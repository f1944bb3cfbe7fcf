"""A trained network split over workers: which neuron goes where, and what crosses."""
