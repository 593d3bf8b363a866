"""NoiseGrad and FusionGrad: the mean of a method over copies of the network with noisy weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from ig2._utils.checks import check_count
from ig2.methods.average import Average
from ig2.methods.base import Result
from ig2.methods.smoothgrad import SmoothGrad, check_deviation, open_generator
from ig2.methods.wrapper import Wrapper
from ig2.references.base import References
from ig2.result import Keep
from ig2.task import Task


@dataclass(frozen=True, eq=False)
class NoiseGrad(Wrapper):
    """NoiseGrad: any method, averaged over n networks with multiplicative Gaussian noise on the weights [Bykov 2022].

    (1/n) Σₖ φ(x; W ⊙ ηₖ) with ηₖ ~ N(1, σ²) for each weight. Noise is applied to every parameter of the network, but not to
    buffers such as running statistics, and is written into a copy of the weights; the network itself is not modified. All
    explicands see the same n networks. The explained class is predicted by the network without noise, the residual is
    relative to its output, and references are the same for all n networks unless their strategy runs the network.

    Args:
        method: the method to average, for example `Gradient()` or `IG2()`.
        samples: the number n of networks.
        sigma: σ, the standard deviation of the factors.

    Raises:
        ModelError: on a call with a function, or with a network whose modules cannot be copied: the weights are needed.

    >>> import ig2
    >>> net = torch.nn.Linear(2, 1).eval()
    >>> weight = net.weight.detach().clone()
    >>> attribution = NoiseGrad(ig2.Gradient(), samples=5)(net, torch.ones(1, 2))
    >>> torch.equal(net.weight, weight), torch.equal(attribution.values, weight)
    (True, False)
    """

    samples: int = 10
    sigma: float = 0.2

    # a faster copy has other weights, such as those of folded layers
    takes_own_gradients: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.samples, "samples")
        check_deviation(self.sigma)

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        generator = open_generator(task, 1)
        average, rows = Average(task, self.samples), torch.arange(len(task))
        with task.session.own_weights() as weights:
            originals = [weight.clone() for weight in weights]
            for _ in range(self.samples):
                for weight, original in zip(weights, originals, strict=True):
                    # on the CPU, so that the noise does not depend on the device
                    noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64, device="cpu")
                    weight.copy_(original * (1 + self.sigma * noise).to(original))
                average.add(self.method.run_checked(task, references, Keep()), rows)
        return average.result()


@dataclass(frozen=True, eq=False)
class FusionGrad(Wrapper):
    """FusionGrad: any method, averaged over m noisy copies of the explicand in each of n noisy networks [Bykov 2022].

    (1/nm) Σₖ Σⱼ φ(x + εⱼ; W ⊙ ηₖ): `NoiseGrad` around `SmoothGrad`. Every network sees the same copies.

    Args:
        method: the method to average, for example `Gradient()` or `IG2()`.
        samples: the number m of copies.
        sigma: the standard deviation of the explicand's noise, as in `SmoothGrad`.
        relative: whether sigma is a share of the explicand's range; if False, it is in the data space.
        networks: the number n of networks.
        weight_sigma: the standard deviation of the weights' factors, as in `NoiseGrad`.

    Raises:
        ModelError: in the same cases as `NoiseGrad`.

    >>> import ig2
    >>> net, x = torch.nn.Linear(2, 1).eval(), torch.tensor([[1.0, 2.0]])
    >>> both = NoiseGrad(SmoothGrad(ig2.Gradient(), 3), 2)
    >>> torch.equal(FusionGrad(ig2.Gradient(), 3, networks=2)(net, x).values, both(net, x).values)
    True
    """

    samples: int = 10
    sigma: float = 0.15
    relative: bool = True
    networks: int = 10
    weight_sigma: float = 0.2

    takes_own_gradients: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.networks, "networks")
        check_deviation(self.weight_sigma, "weight_sigma")
        self._parts()  # checks the others

    def _parts(self) -> NoiseGrad:
        copies = SmoothGrad(self.method, self.samples, self.sigma, self.relative)
        return NoiseGrad(copies, self.networks, self.weight_sigma)

    def run(self, task: Task, references: References | None, keep: Keep) -> Result:
        return self._parts().run(task, references, keep)
