"""The subcommands: each parses, calls and prints.

They compute nothing that the API lacks. Three names to know: `Commands` (the table of them),
`outcome` (exit codes) and `run_and_print`.
"""
