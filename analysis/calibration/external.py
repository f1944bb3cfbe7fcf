"""Other simulators' results as predictors whose parameters can be fitted.

A file says what a simulator predicted with its parameters as they were, and nothing of what others
would have given. So the effect of a change is estimated: what the same change adds to the payload's
time on an idle fabric, by the collective's own messages (`alpha-beta` without headers and
rendezvous). That is exact for a simulator that is such a model, and the first order of any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from analysis.calibration.fit import LoadPredictor
from analysis.calibration.observations import Observation
from analysis.predict.engines.message_costs import Effects
from analysis.predict.interface import Predictor, PredictorError, Setting, load_predictor
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.models.external import External, IsToldWhatIsAsked
from analysis.predict.parameters import RANGES, Range
from collectives.call import CollectiveCall

_PAYLOAD = Effects(headers=False, rendezvous=False)
_FITTED = ("hop_overhead_ns", "message_overhead_ns", "bandwidth_efficiency")


class CorrectedResults:
    """Another simulator's results, corrected by parameters of its own: `hop_overhead_ns` is to be
    added to its latency of a link, `message_overhead_ns` to what a message costs its end hosts, and
    `bandwidth_efficiency` scales its links' bandwidth.

    `results` has the results by the setting that they are about; None stands for any. Raises
    PredictorError for settings without results.
    """

    ignores = External.ignores
    calibratable: Mapping[str, Range] = {name: RANGES[name] for name in _FITTED}

    def __init__(
        self, name: str, results: Mapping[Setting | None, Predictor], **parameters: float
    ) -> None:
        unknown = sorted(set(parameters) - set(_FITTED))
        if unknown:
            raise PredictorError(f"{name}: found {unknown[0]!r}, allowed {', '.join(_FITTED)}")
        self.name = name
        self._results = results
        self._ideal = AlphaBeta.counting(_PAYLOAD)
        self._changed = AlphaBeta.counting(_PAYLOAD, **parameters) if parameters else None

    def expect(self, kinds_and_sizes: Iterable[tuple[str, int]]) -> None:
        """The call that will be asked about, where the results do not tell the run."""
        results = self._results.get(None)
        if isinstance(results, IsToldWhatIsAsked):
            results.expect(kinds_and_sizes)

    def predict(self, setting: Setting, call: CollectiveCall) -> float:
        """Nanoseconds. Raises PredictorError where there is no result."""
        results = self._results.get(setting, self._results.get(None))
        if results is None:
            raise PredictorError(f"{self.name} has no results of this run")
        found = float(results.predict(setting, call))
        if self._changed is None:
            return found
        more = self._changed.predict(setting, call) - self._ideal.predict(setting, call)
        return max(1.0, found + more)


def file_of_run(path: Path, run: str) -> Path:
    """The file that has the results of a run: `path`, or in a directory the one that has the run's
    name before its suffix. Raises PredictorError."""
    if not path.is_dir():
        return path
    found = [file for file in sorted(path.iterdir()) if file.stem == run and file.is_file()]
    if len(found) != 1:
        raise PredictorError(
            f"{path}: found {len(found)} files of the run {run!r}, expected one, named {run} with "
            "any suffix"
        )
    return found[0]


def with_external(
    sources: Mapping[str, Mapping[str, str]], observations: Iterable[Observation]
) -> LoadPredictor:
    """`load_predictor`, with other simulators' results beside the predictors: a name ->
    `{"format": "csv", "path": "times.csv"}`, where a directory has a file for each run. Raises
    PredictorError for files that cannot be read."""
    asked: dict[str, list[Observation]] = {}
    for observation in observations:
        asked.setdefault(observation.run, []).append(observation)
    by_name: dict[str, dict[Setting | None, Predictor]] = {}
    for name, source in sources.items():
        by_name[name] = {}
        for run, own in asked.items():
            file = file_of_run(Path(source["path"]), run)
            results = External(source["format"], file)
            results.expect({(o.call.kind, o.call.size_bytes) for o in own})
            by_name[name].update({o.setting: results for o in own})

    def load(name: str, parameters: Mapping[str, float] | None = None) -> Predictor:
        if name in by_name:
            return CorrectedResults(name, by_name[name], **(parameters or {}))
        return load_predictor(name, parameters)

    return load
