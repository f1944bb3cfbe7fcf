"""The computing and sending of ranks, as pure data: models, their steps, replayed programs. No
torch.

Nothing here sends or waits: `workloads/execution` does. Three names to know: `Stage`,
`StartCollective` and `training_step`.
"""
