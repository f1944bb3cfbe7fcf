"""The ends of runs that fail, and the words for them.

It ends no run. Three names to know: `find_hang`, `HangWatch` (it looks while a run goes on) and
`last_words` (of a rank that ended badly).
"""
