"""The `onnx` guard: a user's classifier, which is a folder with an ONNX model and its tokenizer.

The folder contains ``model.onnx``, ``tokenizer.json`` and ``config.json`` with ``id2label``, as
common tools export them. Long texts are classified in overlapping windows, one at a time per call,
in the threads of the model. Requires the extra ``onnx``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any
from weakref import WeakValueDictionary

import orjson
from pydantic import Field, StringConstraints

from proxy.config.scalars import Label, PositiveShare, Section
from proxy.guards.guard_kind import GuardKind
from proxy.guards.guard_threads import GuardThreads, ModelThreadPool
from proxy.guards.matching.patterns import trim_overlaps
from proxy.guards.matching.re2set import replace_surrogates
from proxy.types.guard import Finding, GuardClient, PromptContext, ServiceText

MODEL_FILE, TOKENIZER_FILE, CONFIG_FILE = "model.onnx", "tokenizer.json", "config.json"
REQUIRED_PACKAGES = ("numpy", "onnxruntime", "tokenizers")
MISSING_EXTRA = "needs the extra: pip install 'headrace[onnx]'"
WINDOW_TOKENS, OVERLAP_TOKENS = 256, 64  # tokens of a window, and of its overlap with the next
MAX_TEXT_CHARS = 64 * 1024  # maximum characters of a text


class CannotClassify(Exception):
    """The text is too long, or the output of the model is invalid."""


@dataclass(eq=False)
class OnnxModel:
    """A loaded model, shared by all guards with the same files.

    With ``is_multi_label``, a text may have several labels.
    """

    session: Any
    tokenizer: Any
    inputs: frozenset[str]
    labels: tuple[str, ...]
    is_multi_label: bool
    pool: ModelThreadPool = field(default_factory=ModelThreadPool)

    def tokenize_windows(self, text: str) -> list[Any]:
        window = self.tokenizer.encode(text)
        return [window, *window.overflowing]

    def classify_pair(self, premise: str, claim: str) -> dict[str, float]:
        """Return the probability of each label for a pair of texts. Raises ``CannotClassify``."""
        return self.classify(self.tokenizer.encode(premise, claim))

    def classify(self, window: Any) -> dict[str, float]:
        """Return the probability of each label for a window. Raises ``CannotClassify``."""
        import numpy as np  # noqa: PLC0415  # an extra

        ids = np.asarray([window.ids], np.int64)
        tensors = {
            "input_ids": ids,
            "attention_mask": np.asarray([window.attention_mask], np.int64),
            "token_type_ids": np.asarray([window.type_ids], np.int64),
        }
        inputs = {name: tensor for name, tensor in tensors.items() if name in self.inputs}
        logits = self.session.run([self.session.get_outputs()[0].name], inputs)[0]
        scores = [float(logit) for logit in logits.ravel()]
        if len(scores) != len(self.labels) or not all(map(math.isfinite, scores)):
            raise CannotClassify
        if self.is_multi_label:
            probabilities = [1 / (1 + math.exp(-s)) if s > -700 else 0.0 for s in scores]
        else:
            powers = [math.exp(score - max(scores)) for score in scores]
            probabilities = [power / sum(powers) for power in powers]
        return dict(zip(self.labels, probabilities, strict=True))


class Onnx:
    """Finds windows in which a label has at least its minimum probability in ``labels``.

    Raises ``ValueError`` without the extra, for missing or invalid files, and for unknown labels.
    """

    __slots__ = ("_labels", "_model")

    def __init__(self, folder: str, labels: Mapping[str, float]) -> None:
        self._model = load_model(Path(folder))
        for name in labels:
            if name not in self._model.labels:
                label_list = ", ".join(self._model.labels[:20])
                raise ValueError(f"the model has no label {name!r}; its labels are {label_list}")
        self._labels = dict(labels)

    async def find_all(
        self, texts: Sequence[ServiceText], prompt: PromptContext, client: GuardClient
    ) -> Sequence[Sequence[Finding]]:
        """Return the findings for each text.

        Raises ``CannotClassify``, and ``Busy`` if too many calls wait.
        """
        with self._model.pool.reserve_threads(client.caller) as in_thread:
            pieces = [replace_surrogates(text.text) for text in texts]
            return [await self._classify_text(piece, in_thread) for piece in pieces]

    async def _classify_text(self, text: str, in_thread: GuardThreads) -> Sequence[Finding]:
        if len(text) > MAX_TEXT_CHARS:
            raise CannotClassify
        findings: list[Finding] = []
        for window in await in_thread(partial(self._model.tokenize_windows, text)):
            span = _get_window_span(window)
            if span is not None:  # one job each, so that a late call stops soon
                probabilities = await in_thread(partial(self._model.classify, window))
                findings += (
                    Finding(span[0], span[1], kind=label, score=round(probabilities[label], 3))
                    for label, threshold in self._labels.items()
                    if probabilities[label] >= threshold
                )
        return trim_overlaps(findings)


def _get_window_span(window: Any) -> tuple[int, int] | None:
    """Return the span of a window in characters, or None if it contains only special tokens."""
    pairs = zip(window.offsets, window.special_tokens_mask, strict=True)
    spans = [offsets for offsets, special in pairs if not special and offsets[0] < offsets[1]]
    return (spans[0][0], spans[-1][1]) if spans else None


_loaded: WeakValueDictionary[tuple[object, ...], OnnxModel] = WeakValueDictionary()
"""Models by the identity of their files, as long as an active policy or a call uses them."""


def load_model(folder: Path) -> OnnxModel:
    """Load and warm up the model of a folder.

    Guards with the same files share one model, so that a policy reload does not load it again.
    Raises ``ValueError`` with the reason.
    """
    if any(find_spec(name) is None for name in REQUIRED_PACKAGES):
        raise ValueError(MISSING_EXTRA)
    for name in (MODEL_FILE, TOKENIZER_FILE, CONFIG_FILE):
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name} does not exist")
    stats = [(folder / name).stat() for name in (MODEL_FILE, TOKENIZER_FILE, CONFIG_FILE)]
    versions = [(s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in stats]
    files = (folder.resolve(), *versions)  # changes when a file is replaced
    model = _loaded.get(files)
    if model is None:
        try:
            model = _loaded[files] = _load_model_files(folder)
        except Exception as error:  # each library raises its own errors
            reason = type(error).__name__
            raise ValueError(f"the model in {folder} cannot be loaded: {reason}") from error
    return model


def _load_model_files(folder: Path) -> OnnxModel:
    import onnxruntime  # noqa: PLC0415  # an extra
    from tokenizers import Tokenizer  # noqa: PLC0415  # an extra

    config = orjson.loads((folder / CONFIG_FILE).read_bytes())
    labels = {int(number): str(name) for number, name in config["id2label"].items()}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # the pool has the threads
    options.enable_cpu_mem_arena = False  # frees the memory of a long text
    options.log_severity_level = 4
    file, providers = str(folder / MODEL_FILE), ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(file, options, providers=providers)
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    tokenizer.no_padding()
    size = next(tensor.shape for tensor in session.get_inputs() if tensor.name == "input_ids")[1]
    if isinstance(size, int):  # the model has a fixed input length
        tokenizer.enable_padding(length=size)
    else:  # some models reserve two positions
        positions = int(config.get("max_position_embeddings", WINDOW_TOKENS + 2))
        size = min(WINDOW_TOKENS, max(2 * OVERLAP_TOKENS, positions - 2))
    tokenizer.enable_truncation(size, stride=OVERLAP_TOKENS)
    model = OnnxModel(
        session=session,
        tokenizer=tokenizer,
        inputs=frozenset(tensor.name for tensor in session.get_inputs()),
        labels=tuple(labels[number] for number in range(len(labels))),
        is_multi_label=config.get("problem_type") == "multi_label_classification",
    )
    # The first run allocates memory, and no call should wait for that.
    with suppress(CannotClassify):
        model.classify(model.tokenize_windows("word")[0])
    return model


class OnnxConfig(Section):
    """Labels that your own classifier assigns to a text (extra `onnx`).

    The folder contains `model.onnx`, `tokenizer.json` and `config.json`. Long texts are classified
    in overlapping windows.
    """

    folder: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    """Folder of the files: an absolute path, or relative to the working directory of Headrace."""
    labels: Annotated[dict[Label, PositiveShare], Field(min_length=1)]
    """Labels of `id2label` that are findings, with their minimum probability."""


KIND = GuardKind(OnnxConfig, lambda keys, context: Onnx(keys.folder, keys.labels))
