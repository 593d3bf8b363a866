"""NoiseGrad: the mean of a method over copies of the network with noisy weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ig2._utils.settings import COUNT, POSITIVE, setting
from ig2.methods.average import Average
from ig2.methods.base import Result
from ig2.methods.smoothgrad import open_generator
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
    FusionGrad is `NoiseGrad(SmoothGrad(method))`, in which every network sees the same noisy copies.

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

    samples: int = setting(10, COUNT)
    sigma: float = setting(0.2, POSITIVE)

    # a faster copy has other weights, such as those of folded layers
    takes_own_gradients = True

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
