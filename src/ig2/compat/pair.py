"""PAIR's `GetMask(x_value, call_model_function, ...)` on our engine, and that of the authors of IG² [Zhuo 2024].

The user's function runs the network and its gradients in any framework; the engine sees a network with one output whose
gradient is returned by the function. Such a function need not return the output itself, so a mask has no residual, and rules
that distribute the change in the output (`ig2.rules.shared`, `scaled`, ...) require a function that also supports
`OUTPUT_LAYER_VALUES`.

The authors' notebooks run unchanged, except for two lines:

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
from ig2._utils.checks import check_count
from ig2.errors import InputError, ModelError, describe
from ig2.methods import PathMethod
from ig2.paths import GradPath, Straight
from ig2.rules import Quadrature, Rule

# What a function is asked for, one at a time: PAIR's keys, and the last two those of the authors of IG².
INPUT_OUTPUT_GRADIENTS = "INPUT_OUTPUT_GRADIENTS"
"""The gradient of the explained output, in the shape of the samples."""
OUTPUT_LAYER_VALUES = "OUTPUT_LAYER_VALUES"
"""The explained output, (n,)."""
REP_LAYER_VALUES = "REP_LAYER_VALUES"
"""The representation; that of the references is passed in `call_model_args["layer_baseline"]`."""
REP_DISTANCE_GRADIENTS = "REP_DISTANCE_GRADIENTS"
"""The negative gradient of the distance to `layer_baseline`, in the shape of the samples; its length is not used."""

Array = NDArray[Any]
CallModel = Callable[..., Mapping[str, Any]]


class _Callback:
    """One call: the sample in double precision, and the user's function with its arguments and precision."""

    def __init__(self, x_value: ArrayLike, function: CallModel, args: Any) -> None:
        if not callable(function):
            raise InputError(f"call_model_function must be a function, got {describe(function)}")
        self.function, self.args = function, args
        self.x, self.dtype = _read_array(x_value, "x_value")

    def ask(self, key: str, samples: Tensor, args: Any = None) -> Any:
        # called inside a backward pass, where gradients are off, and the function is about to take its own
        with torch.enable_grad():
            answer = self.function(
                samples.detach().numpy().astype(self.dtype),
                call_model_args=self.args if args is None else args,
                expected_keys=[key],
            )
        if not isinstance(answer, Mapping) or key not in answer:
            raise ModelError(f"call_model_function was asked for {key} and returned {describe(answer)}, which has none")
        return answer[key]

    def read(self, key: str, samples: Tensor, args: Any = None) -> Tensor:
        """Call the function for numbers: one output for each sample, or a gradient in their shape."""
        answer = self.ask(key, samples, args)
        try:
            numbers = answer.detach().cpu() if isinstance(answer, Tensor) else torch.as_tensor(np.array(answer))
        except (TypeError, ValueError) as error:
            raise ModelError(f"call_model_function returned {key} as {describe(answer)}: expected numbers") from error
        is_output = key == OUTPUT_LAYER_VALUES
        numbers, shape = (numbers.flatten(), samples.shape[:1]) if is_output else (numbers, samples.shape)
        if numbers.shape != shape:
            raise ModelError(f"call_model_function returned {key} as {describe(answer)}: expected the shape {tuple(shape)}")
        return numbers.to(samples)


class _KnownGradient(torch.autograd.Function):
    """Numbers (n,) at samples (n, ...), with a gradient that a function computes only when needed."""

    @staticmethod
    def forward(ctx: Any, samples: Tensor, numbers: Tensor, gradient: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(samples)
        ctx.gradient = gradient
        return numbers.clone()

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        (samples,) = ctx.saved_tensors
        return ctx.gradient(samples) * cotangents[0].reshape(-1, *[1] * (samples.ndim - 1)), None, None


class _Network(nn.Module):
    """A network with one output, and the sample itself as its representation."""

    def __init__(self, callback: _Callback, rule: Rule | None) -> None:
        super().__init__()
        self.samples = nn.Identity()
        self.callback = callback
        self.needs_output = rule is not None and rule.complete

    def forward(self, x: Tensor) -> Any:
        x = self.samples(x)
        output = self.callback.read(OUTPUT_LAYER_VALUES, x) if self.needs_output else x.new_zeros(len(x))
        gradient = lambda points: self.callback.read(INPUT_OUTPUT_GRADIENTS, points)  # noqa: E731
        return _KnownGradient.apply(x, output, gradient)  # type: ignore[no-untyped-call]


class _Distance:
    """The distance in the user's representation, as a distance between samples; only its gradient is known."""

    def __init__(self, callback: _Callback, shape: tuple[int, ...]) -> None:
        self.callback, self.shape = callback, shape
        self.references: Tensor | None = None
        self.args: dict[str, Any] = {}

    def __call__(self, points: Tensor, references: Tensor) -> Any:
        if references is not self.references:  # the same ones all along a path
            representation = self.callback.ask(REP_LAYER_VALUES, references.reshape(-1, *self.shape))
            if isinstance(representation, Tensor):
                representation = representation.detach()
            self.references = references
            self.args = {**(self.callback.args or {}), "layer_baseline": representation}
        args, samples = self.args, points.reshape(-1, *self.shape)
        gradient = lambda points: -self.callback.read(REP_DISTANCE_GRADIENTS, points, args)  # noqa: E731
        return _KnownGradient.apply(samples, points.new_zeros(len(points)), gradient)  # type: ignore[no-untyped-call]


def _read_array(value: ArrayLike, name: str) -> tuple[Tensor, np.dtype[Any]]:
    """Return an array in double precision, and the precision that the user's function receives."""
    array = np.asarray(value)
    try:
        wide = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers, got {describe(value)}") from error
    return torch.from_numpy(wide), array.dtype if array.dtype.kind == "f" else np.dtype(np.float32)


def _mask(
    callback: _Callback, method: PathMethod, x_baseline: ArrayLike | None = None, batch_size: int = 1, is_image: bool = False
) -> Array:
    """Return one sample's attribution by a method that needs no representation."""
    x, shape = callback.x, tuple(callback.x.shape)
    baseline = torch.zeros_like(x) if x_baseline is None else _read_array(x_baseline, "x_baseline")[0]
    if baseline.shape != x.shape:
        raise InputError(f"x_baseline is {describe(baseline)}, x_value {describe(x)}: make their shapes equal")
    # the engine has channels first; what the function sees has them where the user has, or not at all
    restore = (lambda points: points.movedim(1, -1).reshape(-1, *shape)) if is_image else None
    if is_image:
        x, baseline = (sample.reshape(*shape[:2], -1).movedim(-1, 0) for sample in (x, baseline))
    model = ig2.wrap(_Network(callback, method.rule), preprocess=restore)
    values = method(model, x[None], 0, baseline[None], batch_size=batch_size).values
    assert isinstance(values, Tensor)
    return (restore(values) if restore else values)[0].numpy().astype(callback.dtype)


class _Saliency:
    """The interface of PAIR's `CoreSaliency`; a subclass implements `GetMask`."""

    GetMask: Callable[..., Any]

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
        """Return the mean of `GetMask` over noisy copies of the sample, SmoothGrad [Smilkov 2017].

        `x_value`, `call_model_function` and `call_model_args` are those of `GetMask`.

        Args:
            stdev_spread: the standard deviation of the noise, as a share of the sample's range.
            nsamples: the number of copies.
            magnitude: whether to average squares.
            seed: the seed of the noise. PAIR draws it from NumPy's global state.
            kwargs: further arguments of `GetMask`.

        Returns:
            The mask, in the shape of the sample.
        """
        x, dtype = _read_array(x_value, "x_value")
        check_count(nsamples, "nsamples")
        generator, deviation = np.random.default_rng(seed), stdev_spread * float(x.max() - x.min())
        clip = kwargs.get("clip_min_max")  # of IG²
        total = np.zeros(tuple(x.shape))
        for _ in range(nsamples):
            noisy = (x.numpy() + generator.normal(0, deviation, tuple(x.shape))).astype(dtype)
            noisy = noisy if clip is None else np.clip(noisy, *clip)
            mask = self.GetMask(noisy, call_model_function=call_model_function, call_model_args=call_model_args, **kwargs)
            total += mask * mask if magnitude else mask
        return (total / nsamples).astype(dtype)


class IntegratedGradients(_Saliency):
    """PAIR's `IntegratedGradients` [Sundararajan 2017].

    Args:
        rule: by default PAIR's sum, the mean of the gradient at `x_steps` points from end to end. Any of `ig2.rules` is
            instead applied to each of `x_steps` segments; `gauss(1)` and `trapezoid` are much closer to the integral.
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
        """Attribute one sample.

        Args:
            x_value: the sample, without a batch axis.
            call_model_function: a function of samples (n, ...), `call_model_args=` and `expected_keys=` that returns a dict of
                those keys: `INPUT_OUTPUT_GRADIENTS` in the shape of the samples.
            call_model_args: passed on to the function.
            x_baseline: the end of the line, by default zero.
            x_steps: the number of gradients.
            batch_size: the number of samples per call of the function.

        Returns:
            The attribution, in the shape of the sample.

        Raises:
            InputError: if an argument cannot be used.
            ModelError: if the function does not return the expected keys and shapes.
        """
        check_count(x_steps, "x_steps")
        method: PathMethod
        if self.rule is None:
            nodes = tuple(map(float, 1 - np.linspace(0, 1, x_steps)))  # PAIR begins at the baseline
            method = PathMethod(Straight(1), rule=Quadrature(f"pair({x_steps})", nodes, (1 / x_steps,) * x_steps))
        else:
            method = ig2.IntegratedGradients(x_steps, self.rule)
        return _mask(_Callback(x_value, call_model_function, call_model_args), method, x_baseline, batch_size)


class GuidedIG(_Saliency):
    """PAIR's `GuidedIG` [Kapishnikov 2021], with the published sum by default."""

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
        """Attribute one sample, as `IntegratedGradients.GetMask` does; the function receives one sample per call.

        Args:
            x_baseline: the start of the path, by default zero.
            x_steps: the number of steps.
            fraction: the share of features, smallest gradients first, that move at a time.
            max_dist: the maximum deviation of a feature from the straight line, ahead or behind, as a share of it.
        """
        method = ig2.GuidedIG(x_steps, fraction, max_dist, self.rule)
        return _mask(_Callback(x_value, call_model_function, call_model_args), method, x_baseline)


class BlurIG(_Saliency):
    """PAIR's `BlurIG` [Xu 2020] of images (H, W, C) or (H, W), black beyond their edges as in PAIR.

    PAIR multiplies the gradient by the derivative of the blur with respect to sigma, whereas this path has straight segments
    between the blurred images: the two agree in the limit of many steps.
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
        """Attribute one image, as `IntegratedGradients.GetMask` does for a sample.

        Args:
            x_value: the image, channels last.
            max_sigma: the blur at the end of the path, in pixels.
            steps: the number of segments.
            batch_size: the number of images per call of the function.
        """
        if np.ndim(x_value) not in (2, 3):
            raise InputError(f"Blur IG takes an image (H, W, C) or (H, W), got {describe(x_value)}")
        method = ig2.BlurIG(steps, max_sigma, "zero", self.rule)
        callback = _Callback(x_value, call_model_function, call_model_args)
        return _mask(callback, method, batch_size=batch_size, is_image=True)


class IG2(_Saliency):
    """IG² with the authors' interface [Zhuo 2024].

    Args:
        rule: by default the published one. None computes only the paths.
    """

    def __init__(self, rule: Rule | None = rules.left) -> None:
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
        """Attribute one sample: the mean over references.

        Args:
            x_value: the sample, without a batch axis.
            baselines: the references, (R, ...).
            call_model_function: a function of samples (n, ...), `call_model_args=` and `expected_keys=` that returns a dict of
                those keys: `INPUT_OUTPUT_GRADIENTS`, `REP_LAYER_VALUES` or `REP_DISTANCE_GRADIENTS`.
            call_model_args: passed on to the function, with `"layer_baseline"` added in a copy: the references' representation.
            steps: the number of steps of GradPath.
            step_size: their Euclidean length in the space of the samples. The function's gradients should be in the same
                space: if it normalises its input, compute them with respect to the input before.
            clip_min_max: the smallest and the largest value of a sample, or None.
            return_path: whether to also return the points of all paths, as `Get_GradPath` does.
            batch_size: the number of samples per call of the function, by default all references.

        Returns:
            The attribution, in the shape of the sample, or (attribution, path).

        Raises:
            InputError: if an argument cannot be used.
            ModelError: if the function does not return the expected keys and shapes.
        """
        callback = _Callback(x_value, call_model_function, call_model_args)
        x, references = callback.x, _read_array(baselines, "baselines")[0]
        shape = tuple(references.shape[1:])
        if x.shape != shape and (self.rule is not None or x.shape != references.shape):
            raise InputError(f"baselines are {describe(references)}: for x_value {describe(x)} expected (R, ...) of its shape")
        if call_model_args is not None and not isinstance(call_model_args, Mapping):
            raise InputError(f"call_model_args must be a dict, which gets the references; got {describe(call_model_args)}")
        if clip_min_max is not None and len(clip_min_max) != 2:
            raise InputError(f"clip_min_max must be (smallest, largest) or None, got {describe(clip_min_max)}")
        bounds = None if clip_min_max is None else (clip_min_max[0], clip_min_max[1])
        model = ig2.wrap(_Network(callback, self.rule), representation="samples", bounds=bounds)
        method = PathMethod(GradPath(steps, step_size, _Distance(callback, shape)), rule=self.rule)
        x, references = (x[None], references) if x.shape == shape else (x, references[:, None])
        attribution = method(model, x, 0, references, batch_size=batch_size or len(references), paths=return_path)
        assert isinstance(attribution.values, Tensor)
        mask: Array = attribution.values[0].numpy().astype(callback.dtype)
        if not return_path:
            return mask
        assert isinstance(attribution.paths, Tensor)
        points = attribution.paths.flatten(0, 1).unbind(1)  # of (1, R, ...), or (R, 1, ...) where each has a sample
        return mask, [point.numpy().astype(callback.dtype) for point in points]

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
        """Return the points of all paths, without explaining an output.

        Arguments and errors are those of `GetMask`, except that `x_value` may also be (R, ...), a sample for each reference.

        Returns:
            `steps` + 1 arrays (R, ...), from the sample to the GradCFs.
        """
        options = (steps, step_size, clip_min_max, True, batch_size)
        return IG2(rule=None).GetMask(x_value, baselines, call_model_function, call_model_args, *options)[1]

    def GetSmoothedMask(  # type: ignore[override] # the authors' order
        self,
        x_value: ArrayLike,
        baselines: ArrayLike,
        call_model_function: CallModel,
        call_model_args: Mapping[str, Any] | None = None,
        *args: Any,
        clip_min_max: Sequence[float] | None = (0, 255),
        **kwargs: Any,
    ) -> Array:
        """Return the mean of `GetMask` over noisy copies of the sample, which stay inside `clip_min_max`.

        Further arguments are those of `IntegratedGradients.GetSmoothedMask`, from `stdev_spread` on, and of `GetMask`.
        """
        kwargs |= {"baselines": baselines, "clip_min_max": clip_min_max}
        return super().GetSmoothedMask(x_value, call_model_function, call_model_args, *args, **kwargs)
