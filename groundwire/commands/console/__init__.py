"""What commands share: options, progress, tables, exit codes."""
