from pathlib import Path

import pytest
from PIL import Image

from ig2 import modalities


@pytest.fixture
def small(ig2):
    """`ig2 explain` of a photo by a small network, in two steps."""
    ig2.module()
    photo = ig2.photo()
    return lambda *options: ig2("explain", photo, "--model", "mine:small", "--steps", 2, "--count", 2, *options)


@pytest.fixture
def conv(ig2):
    """`ig2 explain` of photos by networks that see 96 pixels: with places at two depths, and others that Strata is not for."""
    ig2.module("""
def seen(side, *layers):
    made = nn.Sequential(*layers).eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(0)
        for weights in made.parameters():
            weights.normal_(std=0.1)
    noise = torch.randint(0, 256, (12, 8, 8, 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    blocks = noise.repeat_interleave(12, 1).repeat_interleave(12, 2).numpy()
    photos = [modalities.Sample(pixels, f"noise {i}") for i, pixels in enumerate(blocks)]
    one = modalities.image.subject(made, (side, side), classes=("red", "green", "blue"), photos=lambda: photos)
    made[-1].bias.data -= one.predict(one.pool()).mean(dim=0)  # so that it sees all classes in noise
    return one

def places(side=96):
    depths = nn.Conv2d(3, 4, 4, 4), nn.ReLU(), nn.Conv2d(4, 4, 2, 2), nn.ReLU()
    return seen(side, *depths, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3))

def places_of_small_pictures():
    return places(95)

def no_places():
    return seen(96, nn.Flatten(), nn.Linear(3 * 96 * 96, 8), nn.ReLU(), nn.Linear(8, 3))

def patches():
    return seen(96, nn.Conv2d(3, 4, 8, 8), nn.Flatten(), nn.Linear(4 * 144, 3))
""")
    fixed = ("--steps", 2, "--count", 2, "--against", "others")

    def run(*options, model="places", photos=None):
        return ig2("explain", *(photos or [ig2.photo()]), "--model", f"mine:{model}", *fixed, *options)

    return run


@pytest.fixture
def digit(ig2):
    """A handwritten seven that the network has not seen, in a file."""
    photos = modalities.image.load("digits").samples()
    Image.fromarray(next(photo for photo in photos if photo.label == "7").source).save("seven.png")
    return Path("seven.png")
