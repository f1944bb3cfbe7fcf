"""A network that is split over workers, and how."""
