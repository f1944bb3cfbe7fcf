"""NCCL's choices: rings and trees over servers, channels, protocols, algorithms and chunk sizes.

NCCL's own programs are here as data and rules, written anew from its public source: each constant
names the file and the function that it comes from. Nothing here sends:
`collectives.algorithms.nccl` writes the programs that ranks run. Three names to know: `Server`,
`Communicator` (its rings, trees and channels) and `Tuner` (which of them a call takes).
"""
