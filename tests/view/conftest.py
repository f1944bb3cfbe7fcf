from tests.report.conftest import page, run_directory

__all__ = ["page", "run_directory"]
