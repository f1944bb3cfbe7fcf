"""The subcommands: each parses, calls and prints."""
