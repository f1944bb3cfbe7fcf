"""The capabilities of this machine, and those that it lacks.

It changes nothing; each lack comes with the command that ends it. Three names to know: `diagnose`,
`Diagnosis` and `Check`.
"""
