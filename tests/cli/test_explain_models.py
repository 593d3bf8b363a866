"""The models of `ig2 explain`."""

import re
import runpy
import sys
from pathlib import Path

import torch
from commands import explained
from PIL import Image
from torch import nn

from ig2 import Attribution, modalities
from ig2.demo import tables


def test_models_from_functions_weights_and_files(ig2):
    ig2.module("""
class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 3)
    def forward(self, x):
        return self.head(x.mean(dim=(2, 3)))
def pooled():
    torch.manual_seed(0)
    return Pooled().train()  # is put in eval mode
""")
    net = runpy.run_path("mine.py")["pooled"]().eval()
    with torch.no_grad():
        net.head.weight.copy_(torch.eye(3) * 20)
        net.head.bias.zero_()
    torch.save(net.state_dict(), "weights.pt")
    batch = {"x": {0: torch.export.Dim("batch")}}
    torch.export.save(torch.export.export(net, (torch.rand(2, 3, 16, 16),), dynamic_shapes=batch), "program.pt2")
    for name, colour in (("red", (255, 0, 0)), ("green", (0, 255, 0)), ("blue", (0, 0, 255))):
        Image.new("RGB", (16, 16), colour).save(ig2.photo(f"pool/{name}.png"))
    assert "--trust" in ig2.refused("explain", "pool/green.png", "-m", "program.pt2")
    for model in (["mine:pooled@weights.pt"], ["program.pt2", "--trust"]):
        options = ("--references", "pool", "--against", "others", "--steps", 2, "--compare", "ig", "-o", "out")
        said = ig2("explain", "pool/green.png", "-m", *model, *options)
        assert said.code == 0, said
        assert "  prediction  class 1, >99%\n" in said.out
        assert re.search(r"IG² +sums to the change in the output by construction; its signs", said.out)  # it is linear
        assert set(re.search(r"references of (.*)", said.out)[1].split(" or ")) == {"class 0", "class 2"}
    assert ig2("explain", "pool/red.png", "-m", "mine:pooled", "--method", "gradient", "-o", "out").code == 0


ALONE = """
class Pooled(nn.Module):
    def __init__(self, features=3):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            self.head = nn.Linear(features, 3)
    def forward(self, x):
        return self.head(x.mean(dim=(2, 3)) if x.ndim == 4 else x)
def photos():
    return Pooled()
def table():
    return Pooled(4)
def number():
    return nn.Linear(4, 1)
"""


def test_a_network_alone_says_what_is_assumed_and_takes_it_from_options(ig2):
    ig2.module(ALONE)
    photo = ig2.photo()
    Path("names.txt").write_text("a\nb\nc\n")
    said = ig2("explain", photo, "-m", "mine:photos", "--method", "gradient", "-o", "out")
    assert said.code == 0 and said.error.startswith("mine:photos is a bare network; assumed: RGB photos of 224 × 224")
    assert all(part in said.error for part in ("0 to 1", "no normalisation", "classes by their numbers", "--size", "--std"))
    typed = ("--size", "8x6", "--mean", "0.5,0.4,0.3", "--std", "0.25", "--classes")
    for classes in ("a,b, c", "names.txt"):
        said = ig2("explain", photo, "-m", "mine:photos", "--method", "ig", *typed, classes, "-o", "out")
        assert said.code == 0 and all(
            part in said.error for part in ("8 × 6", "mean 0.5, 0.4, 0.3", "std 0.25", "3 classes, 'a'")
        )
        attribution = Attribution.load("out/ig.safetensors")
        net, subject = sys.modules["mine"].photos(), modalities.image.subject(nn.Identity(), (8, 6))
        x = (subject.read([photo]).x - torch.tensor([0.5, 0.4, 0.3])[:, None, None]) / 0.25
        scores = net(x)[0].detach().sort(descending=True).values
        torch.testing.assert_close(attribution.output, scores[:1] - scores[1:2])
        assert attribution.values.shape == (1, 3, 8, 6) and explained("out")[0][0] in "abc"
    # values from −1 to 1, and then a mean and a standard deviation of those
    typed = ("--size", 8, "--bounds=-1,1", "--mean", "0.2", "--std", "0.5,0.4,0.3")
    said = ig2("explain", photo, "-m", "mine:photos", "--method", "ig", *typed, "-o", "out")
    assert said.code == 0 and "values from -1 to 1, mean 0.2, std 0.5, 0.4, 0.3" in said.error
    x = modalities.image.subject(nn.Identity(), (8, 8)).read([photo]).x
    scores = net((2 * x - 1 - 0.2) / torch.tensor([0.5, 0.4, 0.3])[:, None, None])[0].detach().sort(descending=True).values
    torch.testing.assert_close(Attribution.load("out/ig.safetensors").output, scores[:1] - scores[1:2], rtol=1e-4, atol=1e-5)
    wrong = (("--size", "big"), ("--size", "1x2x3"), ("--mean", "a"), ("--std", "1,,2"), ("--bounds", "1"), ("--bounds", "1,0"))
    for option, value in (*wrong, ("--bounds", "0,inf")):
        assert option in ig2.refused("explain", photo, "-m", "mine:photos", option, value, code=2)
    assert "bare network" in ig2.refused("explain", photo, "-m", "mine:small", "--size", 8, code=2)


def test_a_network_alone_takes_a_table_with_the_statistics_of_its_file(ig2):
    ig2.module(ALONE)
    rows = tables.example_rows("iris", 30)
    rows.to_csv("rows.csv", index=False)
    said = ig2("explain", "rows.csv", "-m", "mine:table", "--method", "ig", "--rows", 2, "--classes", "a,b,c")
    assert said.code == 0 and "mine:table is a bare network; assumed: 4 columns" in said.error and "in rows.csv" in said.error
    features = torch.tensor(((rows - rows.mean()) / rows.std(ddof=0)).to_numpy()[1], dtype=torch.float32)
    scores = sys.modules["mine"].table()(features).detach().sort(descending=True).values
    output = Attribution.load("ig2-out/ig.safetensors").output
    torch.testing.assert_close(output, scores[:1] - scores[1:2], rtol=1e-4, atol=1e-5)
    said = ig2("explain", "rows.csv", "-m", "mine:number", "--rows", "1:3", "--steps", 2)
    assert said.code == 0 and "one plain number" in said.error
    rows.assign(answer=["x", "y"] * 15).to_csv("answers.csv", index=False)
    said = ig2.refused("explain", "answers.csv", "-m", "mine:table")
    assert "6 features of answers.csv" in said and "leave_out" in said and "table.subject(" in said
    assert "--size is not for rows of a table" in ig2.refused("explain", "rows.csv", "-m", "mine:table", "--size", 8, code=2)
    assert "from_parts" in ig2.refused("explain", "-t", "Why?", "-m", "mine:table")


def test_a_model_for_another_kind_is_refused(ig2):
    photo = ig2.photo()
    assert "questions explains texts, and these are images" in ig2.refused("explain", photo, "-m", "questions")
    assert "wine explains rows of a table, and these are texts" in ig2.refused("explain", "--text", "Why?", "-m", "wine")
    assert "did you mean digits?" in ig2.refused("explain", photo, "-m", "digit")


def test_the_device_can_be_named(small):
    assert small("--device", "cpu").code == 0
    assert small("--device", "cpu:0").code == 0
