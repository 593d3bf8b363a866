"""PAIR's `GetMask(x_value, call_model_function, ...)` on our engine, and that of the authors' IG².

The user's function owns the network and its gradients, in whatever framework it is written; the engine sees a network of
one output whose gradient is what the function says. Such a function need not tell the output itself, so a mask comes
without a residual, and rules that share out the change of the output (`ig2.rules.shared`, `scaled`, ...) want one that
also answers `OUTPUT_LAYER_VALUES`.

The authors' notebooks run as they are, but for two lines:

    from ig2.compat import pair as ig2
    from ig2.compat.pair import REP_LAYER_VALUES, REP_DISTANCE_GRADIENTS
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

import ig2
from ig2 import rules
from ig2.errors import InputError, ModelError, describe
from ig2.methods.path import PathMethod
from ig2.model import Model, wrap
from ig2.paths import GradPath, Straight
from ig2.rules import Quadrature, Rule

# What a function is asked for, one at a time: in PAIR's words, and the last two in those of the authors of IG².
INPUT_OUTPUT_GRADIENTS = "INPUT_OUTPUT_GRADIENTS"
"""The gradient of the output explained, in the shape of the samples."""
OUTPUT_LAYER_VALUES = "OUTPUT_LAYER_VALUES"
"""The output explained, (n,)."""
REP_LAYER_VALUES = "REP_LAYER_VALUES"
"""The representation; it comes back for the references in `call_model_args["layer_baseline"]`."""
REP_DISTANCE_GRADIENTS = "REP_DISTANCE_GRADIENTS"
"""The gradient of minus the distance to that: the way downhill, in the shape of the samples. Its length does not matter."""

Array = NDArray[Any]
CallModel = Callable[..., Mapping[str, Any]]


class _Callback:
    """The user's function, its arguments, and the precision it is handed samples in."""

    def __init__(self, function: CallModel, args: Any, dtype: np.dtype[Any]) -> None:
        if not callable(function):
            raise InputError(f"call_model_function must be a function, got {describe(function)}")
        self.function, self.args, self.dtype = function, args, dtype

    def ask(self, key: str, samples: Tensor, args: Any = None) -> Any:
        # inside a backward pass, where gradients are switched off, and the function is about to take its own
        with torch.enable_grad():
            found = self.function(
                samples.detach().numpy().astype(self.dtype),
                call_model_args=self.args if args is None else args,
                expected_keys=[key],
            )
        if not isinstance(found, Mapping) or key not in found:
            raise ModelError(f"call_model_function was asked for {key} and returned {describe(found)}, which has none")
        return found[key]

    def gradient(self, key: str, samples: Tensor, args: Any = None) -> Tensor:
        found = _numbers(self.ask(key, samples, args), key).to(samples)
        if found.shape != samples.shape:
            raise ModelError(
                f"call_model_function gave {key} as {describe(found)}: expected the samples' {tuple(samples.shape)}"
            )
        return found

    def output(self, samples: Tensor) -> Tensor:
        found = _numbers(self.ask(OUTPUT_LAYER_VALUES, samples), OUTPUT_LAYER_VALUES).to(samples)
        if found.numel() != len(samples):
            raise ModelError(f"call_model_function gave {OUTPUT_LAYER_VALUES} as {describe(found)}: expected ({len(samples)},)")
        return found.reshape(-1)


def _numbers(found: Any, key: str) -> Tensor:
    try:
        return found.detach().cpu() if isinstance(found, Tensor) else torch.as_tensor(np.array(found))
    except (TypeError, ValueError) as error:
        raise ModelError(f"call_model_function gave {key} as {describe(found)}: expected an array of numbers") from error


class _Known(torch.autograd.Function):
    """Numbers (n,) at samples (n, ...), with a gradient that is known by other means, and looked up only when wanted."""

    @staticmethod
    def forward(ctx: Any, samples: Tensor, numbers: Tensor, gradient: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(samples)
        ctx.gradient = gradient
        return numbers.clone()

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        (samples,) = ctx.saved_tensors
        return ctx.gradient(samples) * cotangents[0].reshape(-1, *[1] * (samples.ndim - 1)), None, None


def _known(samples: Tensor, numbers: Tensor, gradient: Callable[[Tensor], Tensor]) -> Tensor:
    made: Tensor = _Known.apply(samples, numbers, gradient)  # type: ignore[no-untyped-call]
    return made


class _Network(nn.Module):
    """A network of one output, and the sample itself for its representation."""

    def __init__(self, callback: _Callback, tells_output: bool) -> None:
        super().__init__()
        self.samples = nn.Identity()
        self.callback = callback
        self.tells_output = tells_output

    def forward(self, x: Tensor) -> Tensor:
        x = self.samples(x)
        output = self.callback.output(x) if self.tells_output else x.new_zeros(len(x))
        return _known(x, output, lambda at: self.callback.gradient(INPUT_OUTPUT_GRADIENTS, at))


class _Distance:
    """The distance that the user's function knows, as one between samples: what it is, nobody says, but its gradient."""

    def __init__(self, callback: _Callback, shape: tuple[int, ...]) -> None:
        self.callback, self.shape = callback, shape
        self.references: Tensor | None = None
        self.args: dict[str, Any] = {}

    def __call__(self, points: Tensor, references: Tensor) -> Tensor:
        if references is not self.references:  # the same ones all along a path
            representation = self.callback.ask(REP_LAYER_VALUES, references.reshape(-1, *self.shape))
            if isinstance(representation, Tensor):
                representation = representation.detach()
            self.references = references
            self.args = {**(self.callback.args or {}), "layer_baseline": representation}
        args = self.args
        return _known(
            points.reshape(-1, *self.shape),
            points.new_zeros(len(points)),
            lambda at: -self.callback.gradient(REP_DISTANCE_GRADIENTS, at, args),
        )


def _sample(value: ArrayLike, name: str) -> tuple[Tensor, np.dtype[Any]]:
    """An array in double precision, and the precision that the user's function takes it in."""
    array = np.asarray(value)
    try:
        wide = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers, got {describe(value)}") from error
    return torch.from_numpy(wide), array.dtype if array.dtype.kind == "f" else np.dtype(np.float32)


def _mask(
    method: PathMethod,
    x_value: ArrayLike,
    call_model_function: CallModel,
    call_model_args: Any,
    x_baseline: ArrayLike | None,
    batch_size: int,
    is_image: bool = False,
) -> Array:
    """One sample's attribution by a method that needs no representation."""
    x, dtype = _sample(x_value, "x_value")
    shape = tuple(x.shape)
    baseline = torch.zeros_like(x) if x_baseline is None else _sample(x_baseline, "x_baseline")[0]
    if baseline.shape != x.shape:
        raise InputError(f"x_baseline is {describe(baseline)}, x_value {describe(x)}: make their shapes equal")
    # the engine has channels first; what the function sees has them where the user has, or not at all
    back = (lambda points: points.movedim(1, -1).reshape(-1, *shape)) if is_image else None
    if is_image:
        x, baseline = (sample.reshape(*shape[:2], -1).movedim(-1, 0) for sample in (x, baseline))
    net = _Network(_Callback(call_model_function, call_model_args, dtype), _shares(method.rule))
    found = method(wrap(net, preprocess=back), x[None], 0, baseline[None], batch_size=batch_size).values
    assert isinstance(found, Tensor)
    return (found[0].movedim(0, -1).reshape(shape) if is_image else found[0]).numpy().astype(dtype)


def _shares(rule: Rule | None) -> bool:
    return rule is not None and rule.complete


def _smoothed(
    mask: Callable[[Array], Array], x_value: ArrayLike, stdev_spread: float, nsamples: int, magnitude: bool, seed: int
) -> Array:
    """The mean of masks, or of their squares, over noised copies."""
    x, dtype = _sample(x_value, "x_value")
    if nsamples < 1:
        raise InputError(f"nsamples must be a positive integer, got {describe(nsamples)}")
    generator = np.random.default_rng(seed)
    deviation = stdev_spread * float(x.max() - x.min())
    total = np.zeros(tuple(x.shape))
    for _ in range(nsamples):
        found = mask((x.numpy() + generator.normal(0, deviation, tuple(x.shape))).astype(dtype))
        total += found * found if magnitude else found
    return (total / nsamples).astype(dtype)


class _Saliency:
    """What PAIR's `CoreSaliency` offers; a subclass writes `GetMask`."""

    GetMask: Callable[..., Array]

    def GetSmoothedMask(
        self,
        x_value: ArrayLike,
        call_model_function: CallModel,
        call_model_args: Any = None,
        stdev_spread: float = 0.15,
        nsamples: int = 25,
        magnitude: bool = True,
        seed: int = 0,
        **kwargs: Any,
    ) -> Array:
        """The mean of `GetMask` over noised copies of the sample.

        Args:
            x_value: the sample, without a batch axis.
            call_model_function: as for `GetMask`.
            call_model_args: as for `GetMask`.
            stdev_spread: the standard deviation of the noise, as a share of the sample's range.
            nsamples: how many copies.
            magnitude: the mean of squares instead.
            seed: of the noise. PAIR draws it from NumPy's global state.
            kwargs: what else `GetMask` takes.
        """
        return _smoothed(
            lambda x: self.GetMask(x, call_model_function, call_model_args, **kwargs),
            x_value,
            stdev_spread,
            nsamples,
            magnitude,
            seed,
        )


class IntegratedGradients(_Saliency):
    """Integrated Gradients.

    Args:
        rule: by default PAIR's own sum: the mean of the gradient at `x_steps` places, both ends among them. Any of
            `ig2.rules` is applied on each of `x_steps` segments instead; `gauss(1)` and `trapezoid` are much closer to the
            integral.
    """

    def __init__(self, rule: Rule | None = None) -> None:
        self.rule = rule

    def GetMask(
        self,
        x_value: ArrayLike,
        call_model_function: CallModel,
        call_model_args: Any = None,
        x_baseline: ArrayLike | None = None,
        x_steps: int = 25,
        batch_size: int = 1,
    ) -> Array:
        """The attribution of one sample, in its shape.

        Args:
            x_value: the sample, without a batch axis.
            call_model_function: called with samples (n, ...), `call_model_args=` and `expected_keys=`, gives a dict with
                those keys: `INPUT_OUTPUT_GRADIENTS` in the shape of the samples.
            call_model_args: handed on to it.
            x_baseline: where the line ends, by default at zero.
            x_steps: how many gradients are taken.
            batch_size: how many samples the function gets at once.
        """
        method: PathMethod
        if self.rule is None:
            method = PathMethod(Straight(1), rule=_everywhere_alike(x_steps))
        else:
            method = ig2.IntegratedGradients(x_steps, self.rule)
        return _mask(method, x_value, call_model_function, call_model_args, x_baseline, batch_size)


def _everywhere_alike(steps: int) -> Quadrature:
    if not isinstance(steps, int) or steps < 1:
        raise InputError(f"x_steps must be a positive integer, got {describe(steps)}")
    places = 1 - np.linspace(0, 1, steps)  # PAIR begins at the baseline
    return Quadrature(f"pair({steps})", tuple(map(float, places)), (1 / steps,) * steps)


class GuidedIG(_Saliency):
    """Guided IG; the published sum unless another rule is given."""

    def __init__(self, rule: Rule = rules.right) -> None:
        self.rule = rule

    def GetMask(
        self,
        x_value: ArrayLike,
        call_model_function: CallModel,
        call_model_args: Any = None,
        x_baseline: ArrayLike | None = None,
        x_steps: int = 200,
        fraction: float = 0.25,
        max_dist: float = 0.02,
    ) -> Array:
        """The attribution of one sample, in its shape.

        Args:
            x_value: the sample, without a batch axis.
            call_model_function: as for `IntegratedGradients.GetMask`; it gets one sample at a time.
            call_model_args: handed on to it.
            x_baseline: where the path begins, by default at zero.
            x_steps: how many steps.
            fraction: the share of features, smallest gradients first, that moves at a time.
            max_dist: how far a feature may be ahead of the straight line or behind, as a share of it.
        """
        method = ig2.GuidedIG(x_steps, fraction, max_dist, self.rule)
        return _mask(method, x_value, call_model_function, call_model_args, x_baseline, 1)


class BlurIG(_Saliency):
    """Blur IG of images (H, W, C) or (H, W), black beyond their edges as in PAIR.

    Where PAIR multiplies the gradient by the blur's derivative by sigma, our path has straight segments between the blurred
    images: the two agree in the limit of many steps.
    """

    def __init__(self, rule: Rule = rules.left) -> None:
        self.rule = rule

    def GetMask(
        self,
        x_value: ArrayLike,
        call_model_function: CallModel,
        call_model_args: Any = None,
        max_sigma: float = 50,
        steps: int = 100,
        batch_size: int = 1,
    ) -> Array:
        """The attribution of one image, in its shape.

        Args:
            x_value: the image, channels last.
            call_model_function: as for `IntegratedGradients.GetMask`.
            call_model_args: handed on to it.
            max_sigma: the blur at the end of the path, in pixels.
            steps: how many segments.
            batch_size: how many images the function gets at once.
        """
        if np.ndim(x_value) not in (2, 3):
            raise InputError(f"Blur IG takes an image (H, W, C) or (H, W), got {describe(x_value)}")
        method = ig2.BlurIG(steps, max_sigma, "zero", self.rule)
        return _mask(method, x_value, call_model_function, call_model_args, None, batch_size, is_image=True)


class IG2:
    """IG² with the authors' call.

    Args:
        rule: by default the published one.
    """

    def __init__(self, rule: Rule = rules.left) -> None:
        self.rule = rule

    def GetMask(
        self,
        x_value: ArrayLike,
        baselines: ArrayLike,
        call_model_function: CallModel,
        call_model_args: Mapping[str, Any] | None = None,
        steps: int = 201,
        step_size: float = 256.0,
        clip_min_max: Sequence[float] | None = (0, 255),
        return_path: bool = False,
        batch_size: int | None = None,
    ) -> Array | tuple[Array, list[Array]]:
        """The attribution of one sample, the mean over references; with `return_path`, and the paths too.

        Args:
            x_value: the sample, without a batch axis.
            baselines: the references, (R, ...).
            call_model_function: called with samples (n, ...), `call_model_args=` and `expected_keys=`, gives a dict with
                those keys: `INPUT_OUTPUT_GRADIENTS`, `REP_LAYER_VALUES` or `REP_DISTANCE_GRADIENTS`.
            call_model_args: handed on to it, with `"layer_baseline"` added in a copy: the references' representation.
            steps: how many steps of GradPath.
            step_size: their Euclidean length. It is in the space of the samples, while the function's gradients are in
                whatever space it takes them: if it normalises, let it take them before.
            clip_min_max: the smallest and the largest value a sample may have, or None.
            return_path: also return the points of all paths, as `Get_GradPath` does.
            batch_size: how many samples the function gets at once, by default all references.
        """
        x, dtype = _sample(x_value, "x_value")
        references, _ = _sample(baselines, "baselines")
        if references.ndim != x.ndim + 1 or references.shape[1:] != x.shape:
            raise InputError(f"baselines are {describe(references)}: for x_value {describe(x)} expected (R, *{tuple(x.shape)})")
        callback, model = self._model(call_model_function, call_model_args, dtype, clip_min_max, _shares(self.rule))
        method = ig2.IG2(steps, step_size, self.rule, _Distance(callback, tuple(x.shape)))
        found = method(model, x[None], 0, references, batch_size=batch_size or len(references), paths=return_path)
        assert isinstance(found.values, Tensor)
        mask: Array = found.values[0].numpy().astype(dtype)
        if not return_path:
            return mask
        assert isinstance(found.paths, Tensor)
        return mask, [points.numpy().astype(dtype) for points in found.paths[0].unbind(1)]

    def Get_GradPath(
        self,
        x_value: ArrayLike,
        baselines: ArrayLike,
        call_model_function: CallModel,
        call_model_args: Mapping[str, Any] | None = None,
        steps: int = 201,
        step_size: float = 256.0,
        clip_min_max: Sequence[float] | None = (0, 255),
        batch_size: int | None = None,
    ) -> list[Array]:
        """The points of all paths: `steps` + 1 arrays (R, ...), from the sample to the GradCFs. No output is explained.

        Args:
            x_value: one sample for all references, or (R, ...) one for each.
            baselines: the references, (R, ...).
            call_model_function: as for `GetMask`.
            call_model_args: as for `GetMask`.
            steps: as for `GetMask`.
            step_size: as for `GetMask`.
            clip_min_max: as for `GetMask`.
            batch_size: as for `GetMask`.
        """
        x, dtype = _sample(x_value, "x_value")
        references, _ = _sample(baselines, "baselines")
        if x.ndim == references.ndim - 1:
            x = x.expand(len(references), *x.shape)
        if x.shape != references.shape:
            raise InputError(f"x_value is {describe(x)}, baselines {describe(references)}: make their samples' shapes equal")
        callback, model = self._model(call_model_function, call_model_args, dtype, clip_min_max, False)
        path = GradPath(steps, step_size, _Distance(callback, tuple(x.shape[1:])))
        method = PathMethod(path, rule=None)
        found = method(model, x, 0, references[:, None], batch_size=batch_size or len(references), paths=True).paths
        assert isinstance(found, Tensor)
        return [points.numpy().astype(dtype) for points in found[:, 0].unbind(1)]

    def GetSmoothedMask(
        self,
        x_value: ArrayLike,
        baselines: ArrayLike,
        call_model_function: CallModel,
        call_model_args: Mapping[str, Any] | None = None,
        stdev_spread: float = 0.15,
        nsamples: int = 25,
        magnitude: bool = True,
        seed: int = 0,
        clip_min_max: Sequence[float] | None = (0, 255),
        **kwargs: Any,
    ) -> Array:
        """The mean of `GetMask` over noised copies of the sample, which stay inside `clip_min_max`.

        Args:
            x_value: the sample, without a batch axis.
            baselines: the references, (R, ...).
            call_model_function: as for `GetMask`.
            call_model_args: as for `GetMask`.
            stdev_spread: the standard deviation of the noise, as a share of the sample's range.
            nsamples: how many copies.
            magnitude: the mean of squares instead.
            seed: of the noise.
            clip_min_max: as for `GetMask`.
            kwargs: what else `GetMask` takes.
        """

        def mask(x: Array) -> Array:
            inside = x if clip_min_max is None else np.clip(x, clip_min_max[0], clip_min_max[1])
            found = self.GetMask(inside, baselines, call_model_function, call_model_args, clip_min_max=clip_min_max, **kwargs)
            assert not isinstance(found, tuple)
            return found

        return _smoothed(mask, x_value, stdev_spread, nsamples, magnitude, seed)

    @staticmethod
    def _model(
        function: CallModel, args: Any, dtype: np.dtype[Any], clip: Sequence[float] | None, tells_output: bool
    ) -> tuple[_Callback, Model]:
        if args is not None and not isinstance(args, Mapping):
            raise InputError(f"call_model_args must be a dict, to which the references are added; got {describe(args)}")
        if clip is not None and len(clip) != 2:
            raise InputError(f"clip_min_max must be (smallest, largest) or None, got {describe(clip)}")
        callback = _Callback(function, args, dtype)
        bounds = None if clip is None else (clip[0], clip[1])
        return callback, wrap(_Network(callback, tells_output), representation="samples", bounds=bounds)
