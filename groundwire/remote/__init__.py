"""Runs on other machines: playbooks driven through ansible-runner (the extra `remote`).

Nothing of it runs on those machines but Groundwire itself. Three names to know: `remote_run`,
`remote_collect` and `Hosts`.
"""
