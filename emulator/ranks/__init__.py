"""Ranks: started, watched, ended; ours and programs of users, of one job or of several.

A server imports torch once and forks ranks; a failed rank is named with its own words. Ranks' work
is in `workloads`. Three names to know: `Launcher`, `RankJob` and `RankFailed`.
"""
