"""result.json: the figures of a run, their verdict with all its reasons, and what is noted.

It reads a run directory (`analysis.runs`) and holds predictions beside it (`analysis.predict`). It
draws nothing: `analysis.report` does. Three names to know: `build_result` (result.json),
`judged_times` (whether its times are right) and `Expectation` (the least and the most of a time).
"""
