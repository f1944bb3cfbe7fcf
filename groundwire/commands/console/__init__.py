"""The common parts of commands: options, progress, tables, exit codes."""
