"""SHAP's call [Lundberg 2017]: an explainer, called on data, returns a `shap.Explanation` for SHAP's plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ig2.compat import AnyModel, as_method, as_references, as_tensor
from ig2.errors import InputError, describe, import_extra
from ig2.methods import Method
from ig2.model import as_model


class Explainer:
    """The counterpart of `shap.Explainer(model, masker)`: a method, a model and references, called on data.

    >>> import numpy as np, torch, ig2
    >>> explainer = Explainer(ig2.ExpectedIG(), torch.nn.Linear(3, 2), np.zeros((5, 3)), outputs=[0, 1])
    >>> explainer(np.ones((4, 3))).values.shape
    (4, 3, 2)

    Args:
        method: an ig2 method, for example `ig2.IG2(steps=200)`.
        model: a network, or the result of `ig2.wrap`.
        references: an array of samples (R, ...), a number, or a strategy of `ig2.references`.
        outputs: the output to explain for all samples, or several, which become the last axis. By default the predicted
            class of each sample.
        feature_names: names of the columns; by default those of a data frame.
        output_names: names of all the network's outputs, in order; shown if several are explained.
        channels_last: whether to put the channels of images (B, C, H, W) last, as `shap.plots.image` expects.
        seed: the seed of all random draws.
        batch_size: the number of points per batch of the network.

    Raises:
        InputError: if `method` is not an ig2 method, or `outputs` is empty.
    """

    def __init__(
        self,
        method: Method,
        model: AnyModel,
        references: Any = None,
        *,
        outputs: int | Sequence[int] | None = None,
        feature_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        channels_last: bool = False,
        seed: int = 0,
        batch_size: int | Literal["auto"] = "auto",
    ) -> None:
        if isinstance(outputs, Sequence) and not outputs:
            raise InputError("outputs is empty: name at least one, or leave it out for the predicted class")
        self.method, self.model = as_method(method), as_model(model)
        self.references = as_references(references, self.model)
        self.outputs, self.feature_names, self.output_names = outputs, feature_names, output_names
        self.channels_last, self.seed, self.batch_size = channels_last, seed, batch_size

    def __call__(self, data: Any) -> Any:
        """Explain samples (B, ...), as an array, a data frame or a tensor.

        Returns:
            A `shap.Explanation`. Its base values are the output at the baseline, the mean over references, or zero for
            methods without one.
        """
        shap = import_extra("shap", "shap", "ig2.compat.shap")
        names, output_names = self.feature_names, None
        if names is None and hasattr(data, "columns"):
            names = [str(name) for name in data.columns]
        if self.output_names is not None and isinstance(self.outputs, Sequence):
            output_names = [self.output_names[output] for output in self.outputs]
        each = [attribution.to_shap(names) for attribution in self._attribute(data)]
        return shap.Explanation(
            values=self._stack([self._arrange(explanation.values) for explanation in each]),
            base_values=self._stack([explanation.base_values for explanation in each]),
            data=self._arrange(each[0].data),
            feature_names=each[0].feature_names,
            output_names=output_names,
        )

    def shap_values(self, data: Any) -> NDArray[Any]:
        """Return only the values, in the shape of the data, with a last axis for the outputs if there are several."""
        return self._stack([self._arrange(a.values.detach().cpu().numpy()) for a in self._attribute(data)])

    def _attribute(self, data: Any) -> list[Any]:
        x = as_tensor(data, self.model, "the data")
        if self.channels_last and x.ndim != 4:
            raise InputError(f"channels_last is for images (B, C, H, W), got {describe(data)}")
        targets = self.outputs if isinstance(self.outputs, Sequence) else [self.outputs]
        options: dict[str, Any] = {"seed": self.seed, "batch_size": self.batch_size}
        return [self.method(self.model, x, target, self.references, **options) for target in targets]

    def _stack(self, arrays: list[NDArray[Any]]) -> NDArray[Any]:
        """Stack several outputs along the last axis."""
        return np.stack(arrays, axis=-1) if isinstance(self.outputs, Sequence) else arrays[0]

    def _arrange(self, array: NDArray[Any]) -> NDArray[Any]:
        return np.moveaxis(array, 1, -1) if self.channels_last else array
