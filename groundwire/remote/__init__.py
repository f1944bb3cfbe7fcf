"""Runs on other machines: playbooks driven through ansible-runner (the extra `remote`)."""
