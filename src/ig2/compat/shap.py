"""SHAP's way to explain: an explainer called on data gives a `shap.Explanation` for SHAP's plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ig2.attribution import Attribution
from ig2.compat import as_given, as_tensor
from ig2.errors import InputError, describe, import_extra
from ig2.methods.base import Method
from ig2.model import Model, wrap


class Explainer:
    """A method, a model and whom to contrast with, to be called on data.

    >>> import numpy as np, torch, ig2
    >>> explainer = Explainer(ig2.ExpectedIG(), torch.nn.Linear(3, 2), np.zeros((5, 3)), outputs=[0, 1])
    >>> explainer(np.ones((4, 3))).values.shape
    (4, 3, 2)

    Args:
        method: for example `ig2.IG2(steps=200)`.
        model: a network, or what `ig2.wrap` returned.
        references: whom to contrast with: an array of samples (R, ...), a number, or a strategy of `ig2.references`.
        outputs: which outputs to explain: one for all samples, or several, which then are the last axis. By default, for
            each sample the class predicted.
        feature_names: of the columns; by default a data frame's own.
        output_names: of all the network's outputs, in their order; shown where several are explained.
        channels_last: put the channels of images (B, C, H, W) last in the explanation, where `shap.plots.image` wants them.
        seed: of everything random in the method.
        batch_size: how many points the network sees at once.
    """

    def __init__(
        self,
        method: Method,
        model: Model | nn.Module | Callable[..., Any],
        references: Any = None,
        *,
        outputs: int | Sequence[int] | None = None,
        feature_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        channels_last: bool = False,
        seed: int = 0,
        batch_size: int | Literal["auto"] = "auto",
    ) -> None:
        if not isinstance(method, Method):
            raise InputError(f"method must be one of ours, for example ig2.IG2(), got {describe(method)}")
        if isinstance(outputs, Sequence) and not outputs:
            raise InputError("outputs is empty: name at least one, or leave it out for the class predicted")
        self.method = method
        self.model = model if isinstance(model, Model) else wrap(model)
        self.references = as_given(references, self.model)
        self.outputs = outputs
        self.feature_names = feature_names
        self.output_names = output_names
        self.channels_last = channels_last
        self.seed = seed
        self.batch_size = batch_size

    def __call__(self, data: Any) -> Any:
        """A `shap.Explanation` of samples (B, ...): an array, a data frame or a tensor.

        Its base values are the output at the baseline, the mean over references, or zero for methods without one.
        """
        shap = import_extra("shap", "shap", "ig2.compat.shap")
        found = self._attributions(data)
        values, base = self._shown(found)
        sample = found[0].explicand
        assert isinstance(sample, Tensor)
        outputs = None
        if self.output_names is not None and isinstance(self.outputs, Sequence):
            outputs = [self.output_names[output] for output in self.outputs]
        columns = getattr(data, "columns", None)
        names = self.feature_names if self.feature_names is not None or columns is None else [str(name) for name in columns]
        return shap.Explanation(
            values=values,
            base_values=base,
            data=self._laid_out(sample),
            feature_names=None if names is None else list(names),
            output_names=outputs,
        )

    def shap_values(self, data: Any) -> NDArray[Any]:
        """The values alone, in the shape of the data, with a last axis for the outputs where several are explained."""
        return self._shown(self._attributions(data))[0]

    def _attributions(self, data: Any) -> list[Attribution]:
        x = as_tensor(data, self.model, "the data")
        if self.channels_last and x.ndim != 4:
            raise InputError(f"channels_last is for images (B, C, H, W), got {describe(data)}")
        targets = self.outputs if isinstance(self.outputs, Sequence) else [self.outputs]
        return [
            self.method(self.model, x, target, self.references, seed=self.seed, batch_size=self.batch_size)
            for target in targets
        ]

    def _shown(self, found: list[Attribution]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Values and base values; of several outputs, with these as the last axis."""
        values, base = [], []
        for attribution in found:
            assert isinstance(attribution.values, Tensor)
            values.append(self._laid_out(attribution.values))
            at_baseline = attribution.baseline_output
            base.append(np.zeros(len(attribution)) if at_baseline is None else at_baseline.detach().cpu().numpy())
        if not isinstance(self.outputs, Sequence):
            return values[0], base[0]
        return np.stack(values, axis=-1), np.stack(base, axis=-1)

    def _laid_out(self, tensor: Tensor) -> NDArray[Any]:
        array: NDArray[Any] = tensor.detach().cpu().numpy()
        return np.moveaxis(array, 1, -1) if self.channels_last else array
