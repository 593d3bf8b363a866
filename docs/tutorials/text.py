"""Text: which words decided.

You make a small classifier of sentences, good news or bad, and see how it reads "not".
It needs `pip install ".[plots]"` in a checkout.
"""

import itertools
import random
import re

import torch
from torch import nn

import ig2
from ig2 import modalities, plots

# ## Sentences
#
# Made up, so that we know what is true: an adjective decides, and "not" turns it round.

THINGS = ("film", "soup", "hotel", "concert", "journey")
GOOD, BAD = ("great", "lovely", "warm", "clever"), ("awful", "dull", "cold", "silly")
BEFORE = ("", "really ", "not ", "not really ")
sentences = []
for thing, adjective, word in itertools.product(THINGS, GOOD + BAD, BEFORE):
    good = (adjective in GOOD) != word.startswith("not")
    sentences.append((f"The {thing} was {word}{adjective}.", int(good)))
random.Random(0).shuffle(sentences)
print(len(sentences), "sentences, such as", sentences[0])

# ## A tokenizer
#
# A function from a sentence to the tokens in it: the number of each, and where it stands. Number 0 is padding.

vocabulary = {}


def tokenize(sentence):
    found = list(re.finditer(r"\w+|[^\w\s]", sentence))
    numbers = [vocabulary.setdefault(word[0].lower(), len(vocabulary) + 1) for word in found]
    return [(number, word.start(), word.end()) for number, word in zip(numbers, found, strict=True)]


for sentence, _ in sentences:
    tokenize(sentence)

# ## A network
#
# An embedding, and the rest of the network. It takes the embeddings and a mask, 1 where there is a token and 0 at padding.


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.MultiheadAttention(16, 2, batch_first=True)
        self.think = nn.Linear(16, 32)
        self.decide = nn.Linear(32, 2)

    def forward(self, embeddings, mask):
        padding = mask == 0
        seen, _ = self.look(embeddings, embeddings, embeddings, padding, need_weights=False)
        thought = self.think(embeddings + seen).relu() * mask[..., None]
        return self.decide(thought.sum(dim=1))


torch.manual_seed(0)
embedding, reader = nn.Embedding(len(vocabulary) + 1, 16, padding_idx=0), Reader()
subject = modalities.text.from_parts(
    embedding,
    reader,
    tokenize,
    classes=["bad news", "good news"],
    texts=[sentence for sentence, _ in sentences[:40]],
)

# `encode` cuts and pads. What is attributed is the embedding of each word; the mask comes along, fixed.

batch = subject.read([sentence for sentence, _ in sentences])
answers = torch.tensor([good for _, good in sentences])
optimizer = torch.optim.Adam([*embedding.parameters(), *reader.parameters()], lr=1e-2)
for _ in range(60):
    optimizer.zero_grad()
    nn.functional.cross_entropy(reader(embedding(batch.ids), batch.mask), answers).backward()
    optimizer.step()
reader.eval()

# ## Explain
#
# Three sentences of different lengths. Padding never moves and gets nothing.

batch = subject.read(
    [
        "The soup was lovely.",
        "The film was not awful.",
        "The concert was not really great.",
    ]
)
print([subject.describe_output(scores) for scores in subject.predict(batch)])
method = ig2.IG2(steps=40, rule=ig2.rules.gauss(2))
attribution = ig2.Question(count=6).pose(subject, method, batch)()
print(attribution.verdict)

# A number for each word, summed over its embedding:

scores = subject.scores(batch, attribution)
for words, numbers in zip(batch.units, scores, strict=True):
    print("  ".join(f"{word} {number:+.1f}" for word, number in zip(words, numbers, strict=True)))

titles = [subject.label(int(target)) for target in attribution.target]
figure = plots.text(attribution, batch.units, scores=scores, titles=titles)
figure.savefig("words.png", bbox_inches="tight")

# A path moves through embeddings and may change any word on its way, so a plain word such as "was" can get a share: changing it
# changes the network's mind too. `ig2.ExpectedIG` on the same references moves only words that differ.
