"""The refusal of a simulator."""


class SimulationError(Exception):
    """The engine cannot be built or run here, or refuses a scenario; the message says why."""
