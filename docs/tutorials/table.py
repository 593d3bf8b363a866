"""A table: which columns decided.

You train a network on a table of wines, three kinds with thirteen measurements each, and ask which of the measurements made
it say what it says. It needs `pip install ".[plots,table,demo]"` in a checkout.
"""

import torch
from sklearn.datasets import load_wine
from torch import nn

import ig2
from ig2 import modalities, plots

# ## Columns
#
# `infer_columns` looks at the training rows and notes each column's mean and deviation. Columns of text become categories.

wine = load_wine(as_frame=True)
train = wine.frame.iloc[::2].drop(columns="target")
answers = torch.tensor(wine.frame["target"].iloc[::2].to_numpy())
columns = modalities.table.infer_columns(train)
print(columns[0])

# ## A network
#
# It takes the columns side by side, each less its mean and divided by its deviation. The subject does that to every row it
# reads, so that you give and read rows in their own units.

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(13, 32), nn.SiLU(), nn.Linear(32, 16), nn.SiLU(), nn.Linear(16, 3))
subject = modalities.table.subject(net, columns, classes=["Barolo", "Grignolino", "Barbera"], rows=train)
features = subject.read(train).x
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=1e-3)
for _ in range(100):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(features), answers).backward()
    optimizer.step()
net.eval()

# ## Explain two rows
#
# A question picks references for each row: rows that the network puts in another class, a few of each.

rows = wine.frame.iloc[[1, 175]]
batch = subject.read(rows)
method = ig2.IG2(steps=50, rule=ig2.rules.gauss(2))
call = ig2.Question(against=None, count=8).pose(subject, method, batch)
print([subject.describe_output(scores) for scores in subject.predict(batch)])
print("against", call.contrast.labels[0][:4])

attribution = call()
print(attribution.verdict)

# ## Read it
#
# A number for each column, in the units of the output. They add up to the output of the row less that of its counterfactuals.

scores = subject.scores(batch, attribution)
strongest = sorted(zip(batch.units[0], scores[0], strict=True), key=lambda pair: -abs(pair[1]))
for name, score in strongest[:4]:
    print(f"{name:28} {score:+.2f}")

figure = plots.bars(
    attribution,
    batch.units[0],
    cells=batch.cells,
    scores=scores,
    top=8,
    titles=[subject.label(int(target)) for target in attribution.target],
)
figure.savefig("columns.png", bbox_inches="tight")

# ## What would have to be different
#
# GradCF is a row too. In the rows' own units it reads like one:

before = subject.cells(batch.attributed[0])
after = subject.cells(attribution.gradcf[0, 0])
for name, was, would_be in list(zip(batch.units[0], before, after, strict=True))[-3:]:
    print(f"{name:28} {was:>8} -> {would_be}")
