"""Where traces come from: specs, runs, replays, files, PyTorch's observer."""
