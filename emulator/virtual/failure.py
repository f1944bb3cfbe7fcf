"""The one exception of this package."""


class VirtualKernelError(RuntimeError):
    """The virtual kernel cannot be built or started here; the message says why and what to do."""
