"""Messages between ranks of one server as copies of memory: a rank's end (`CopyEnds`), and the
links of a group by which programs send and receive (`CopyLinks`). The thread that has copies take
their time is in emulator/ranks/copies/. Begin with `CopiesPlace`."""
