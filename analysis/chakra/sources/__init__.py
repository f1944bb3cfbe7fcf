"""The sources of traces: specs, runs, replays, files, PyTorch's observer."""
