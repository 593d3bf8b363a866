"""Drawn faces with attributes of CelebA that can really be seen, and the exact component of every pixel.

Each attribute is drawn or not on its own, apart from those that cannot go together (the bald have no hair colour, a hat hides
the fringe), so that only the place where it is drawn tells whether it is there. Skin, clothes, background, light, position,
tilt and proportions vary and tell nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ig2._utils.checks import check_count
from ig2_bench.datasets.celeba.files import ATTRIBUTES, COMPONENTS, FaceSamples, sides

Numbers = NDArray[np.floating[Any]]
Colour = tuple[float, float, float]

HAIR: dict[str, Colour] = {
    "Black_Hair": (0.09, 0.08, 0.09),
    "Blond_Hair": (0.88, 0.74, 0.40),
    "Brown_Hair": (0.40, 0.23, 0.12),
    "Gray_Hair": (0.64, 0.64, 0.66),
}
SKIN: tuple[Colour, ...] = (
    (0.92, 0.74, 0.62), (0.86, 0.66, 0.51), (0.76, 0.56, 0.42), (0.64, 0.45, 0.32), (0.50, 0.34, 0.24),
)  # fmt: skip
PALE: Colour = (0.98, 0.92, 0.89)
REDS: tuple[Colour, ...] = ((0.80, 0.05, 0.15), (0.70, 0.05, 0.40), (0.85, 0.15, 0.10))
# how often each is drawn where nothing speaks against it
CHANCES = {
    "Arched_Eyebrows": 0.4, "Bags_Under_Eyes": 0.35, "Bangs": 0.4, "Big_Lips": 0.4, "Big_Nose": 0.4, "Bushy_Eyebrows": 0.4,
    "Eyeglasses": 0.35, "Goatee": 0.3, "Mouth_Slightly_Open": 0.45, "Mustache": 0.3, "Narrow_Eyes": 0.4, "Pale_Skin": 0.3,
    "Rosy_Cheeks": 0.35, "Smiling": 0.5, "Wearing_Earrings": 0.4, "Wearing_Hat": 0.25, "Wearing_Lipstick": 0.4,
    "Wearing_Necklace": 0.35, "Wearing_Necktie": 0.35,
}  # fmt: skip
BALD = 0.15
HIGH = 1.225  # CelebA's pictures are that much higher than wide
DRAWN = tuple(name for name in ATTRIBUTES if name in {*CHANCES, *HAIR, "Bald", "No_Beard", "Straight_Hair", "Wavy_Hair"})
"""The attributes that are drawn, in CelebA's order. The others (Attractive, Male, Young …) are not labels of these faces."""


def draw_faces(count: int, seed: int = 0, size: int | tuple[int, int] = (109, 89)) -> FaceSamples:
    """Draw faces as bytes (N, 3, H, W), which of the attributes in `DRAWN` each has, and its components.

    A larger `count` adds faces and keeps the others.

    Args:
        count: how many.
        seed: which.
        size: height and width, or one number for both, 32 or more. The whole face is drawn in any of them.

    >>> faces = draw_faces(3)
    >>> faces.x.shape, faces.y.shape, faces.truth("Eyeglasses").shape
    (torch.Size([3, 3, 109, 89]), torch.Size([3, 27]), torch.Size([3, 109, 89]))
    """
    check_count(count)
    shape = sides(size, 32)
    pictures = np.empty((count, *shape, 3), dtype=np.uint8)
    parts = np.empty((count, *shape), dtype=np.uint8)
    y = torch.zeros(count, len(DRAWN), dtype=torch.long)
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        has = _attributes(rng)
        pictures[number], parts[number] = _Face(shape, has, rng).draw()
        y[number, [DRAWN.index(name) for name in has]] = 1
    return FaceSamples(
        x=torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous(),
        y=y,
        classes=DRAWN,
        names=tuple(f"face {number}" for number in range(count)),
        source=f"{count:,} faces drawn by ig2 with {len(DRAWN)} attributes of CelebA, seed {seed}, with exact components",
        components=torch.from_numpy(parts),
    )


def _attributes(rng: np.random.Generator) -> set[str]:
    has = {name for name, chance in CHANCES.items() if rng.random() < chance}
    colour, texture, bald = rng.choice(list(HAIR)), rng.choice(("Straight_Hair", "Wavy_Hair")), rng.random() < BALD
    if bald:
        has = has - {"Bangs", "Wearing_Hat"} | {"Bald"}
    else:
        has |= {str(colour), str(texture)}
    if "Wearing_Hat" in has:
        has.discard("Bangs")
    if not has & {"Goatee", "Mustache"}:
        has.add("No_Beard")
    return has


class _Face:
    """One face, drawn from back to front.

    Lengths are in half widths of the picture, whatever its shape; the eyes are at height 0 and down is positive.
    """

    def __init__(self, shape: tuple[int, int], has: set[str], rng: np.random.Generator) -> None:
        self.has, self.rng = has, rng
        height, width = shape
        across, down = np.meshgrid(*((np.arange(n, dtype=np.float32) + 0.5) * 2 / n - 1 for n in (width, height)))
        down = down * HIGH
        wall = rng.uniform(0.25, 0.85) + rng.normal(0, 0.07, 3)
        light = 1 + rng.uniform(-0.25, 0.25) * across + rng.uniform(-0.25, 0.25) * down
        self.picture: Numbers = (wall * light[..., None]).astype(np.float32)
        self.parts = np.zeros(shape, dtype=np.uint8)
        self.shade = 1 + rng.uniform(-0.12, 0.12) * across + rng.uniform(-0.06, 0.06)
        # the head sits a little elsewhere, larger or smaller and tilted
        tilt, scale = rng.normal(0, 0.06), rng.uniform(0.92, 1.06)
        dx, dy = rng.normal(0, 0.03, 2)
        self.u: Numbers = (((across - dx) * math.cos(tilt) + (down - dy) * math.sin(tilt)) / scale).astype(np.float32)
        self.v: Numbers = (((down - dy) * math.cos(tilt) - (across - dx) * math.sin(tilt)) / scale).astype(np.float32)
        self.pixel = 2 / min(width, height / HIGH) / scale
        self.wide, self.chin = rng.uniform(0.46, 0.53), rng.uniform(0.68, 0.76)
        self.skin = _near(PALE if "Pale_Skin" in has else SKIN[rng.integers(len(SKIN))], rng, 0.015)
        # the bald have eyebrows and beards of some colour too
        colour = next((name for name in HAIR if name in has), None) or str(rng.choice(list(HAIR)))
        self.hair = _near(HAIR[colour], rng, 0.02)

    def draw(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The picture (H, W, 3), and the component of each pixel (H, W)."""
        for part in (
            self.hair_behind, self.body, self.head, self.skin_details, self.eyes, self.nose, self.goatee, self.mouth,
            self.mustache, self.hair_above, self.brows, self.glasses, self.hat, self.earrings,
        ):  # fmt: skip
            part()
        noise = self.rng.standard_normal(self.picture.shape[:2], dtype=np.float32) * self.rng.uniform(0.005, 0.025)
        lit = (self.picture * self.shade[..., None] + noise[..., None]).clip(0, 1)
        return (lit * 255).round().astype(np.uint8), self.parts

    # -- shapes: how deep inside each pixel lies, negative outside -----------------------------------------------------

    def oval(self, x: float, y: float, a: Numbers | float, b: float) -> Numbers:
        across, down = (self.u - x) / a, (self.v - y) / b
        return np.asarray((1 - np.sqrt(across * across + down * down)) * min(np.min(a), b), dtype=np.float32)

    def band(self, middle: Numbers | float, half: Numbers | float, left: float, right: float) -> Numbers:
        """Along a curve, from one end to the other."""
        inside: Numbers = np.minimum(half - np.abs(self.v - middle), np.minimum(self.u - left, right - self.u))
        return inside

    def face(self) -> Numbers:
        jaw = 1 - 0.24 * ((self.v - 0.05) / self.chin).clip(0, 1) ** 2
        return self.oval(0, 0.08, self.wide * jaw, self.chin - 0.08)

    def paint(self, depth: Numbers, colour: Sequence[float] | Numbers, part: str | None = None, strength: float = 1) -> None:
        """Lay a colour over what is there, soft at the edge; what it covers belongs to the component named, if one is."""
        cover = (depth / self.pixel + 0.5).clip(0, 1)
        self.blend(cover * strength, colour)
        if part is not None:
            self.parts[cover > 0.5] = COMPONENTS.index(part)

    def blend(self, cover: Numbers, colour: Sequence[float] | Numbers) -> None:
        rows, columns = (np.flatnonzero(cover.any(axis=axis)) for axis in (1, 0))
        if rows.size == 0:
            return
        # most parts are small, and the rest of the picture stays as it is
        box = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
        colour = np.asarray(colour, dtype=np.float32)
        self.picture[box] += cover[box][..., None] * ((colour[box] if colour.ndim == 3 else colour) - self.picture[box])

    def glow(self, x: float, y: float, a: float, b: float, colour: Sequence[float], strength: float) -> None:
        """A spot that fades towards its edge."""
        self.blend(strength * (self.oval(x, y, a, b) / (0.75 * min(a, b))).clip(0, 1), colour)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def strands(self) -> Numbers:
        """The colour of hair, in strands."""
        sway = 0.06 * np.sin(9 * self.v + 2) if "Wavy_Hair" in self.has else 0.02 * self.v
        light = 0.96 + 0.1 * np.sin(55 * (self.u + sway)) + 0.05 * self.v
        return np.asarray(light[..., None] * np.asarray(self.hair, dtype=np.float32), dtype=np.float32)

    def hair_behind(self) -> None:
        if "Bald" in self.has:
            return
        long = self.rng.random() < 0.5
        curls = 0.035 * np.sin(14 * np.arctan2(self.v - 0.1, self.u)) if "Wavy_Hair" in self.has else 0
        reach = self.rng.uniform(0.75, 1.15) if long else 0.2
        depth = self.oval(0, -0.02, self.wide + 0.17, 0.72) + curls
        if long:
            sides = np.minimum(self.wide + 0.15 - np.abs(self.u) + curls, np.minimum(self.v + 0.1, reach - self.v))
            depth = np.maximum(depth, sides)
        else:
            depth = np.minimum(depth, reach - self.v)
        self.paint(depth, self.strands() * 0.85, "hair")

    def body(self) -> None:
        cloth = _near([self.rng.uniform(0.15, 0.75)] * 3, self.rng, 0.1)
        slope = 0.86 + 0.35 * (np.abs(self.u) - 0.3).clip(0, None) ** 1.3
        self.paint(self.v - slope, cloth, "cloth")
        neck = np.minimum(0.25 - np.abs(self.u), np.minimum(self.v - 0.3, 1.0 - 0.9 * np.abs(self.u) ** 1.5 - self.v))
        self.paint(neck, [0.88 * c for c in self.skin], "neck")
        if "Wearing_Necktie" in self.has:
            shirt = 0.02 + (self.v - 0.9) * 0.75 - np.abs(self.u) * 0.9
            self.paint(np.minimum(np.minimum(shirt, 0.34 - np.abs(self.u)), self.v - 0.86), (0.95, 0.95, 0.96), "cloth")
            tie = _near((0.6, 0.1, 0.15) if self.rng.random() < 0.5 else (0.1, 0.15, 0.5), self.rng, 0.08)
            knot = np.minimum(0.07 - 0.3 * np.abs(self.v - 0.98) - np.abs(self.u), 0.06 - np.abs(self.v - 0.98))
            self.paint(knot, tie, "cloth")
            blade = np.minimum(0.045 + 0.16 * (self.v - 1.0) - np.abs(self.u), self.v - 1.0)
            self.paint(blade, [0.85 * c for c in tie], "cloth")
        if "Wearing_Necklace" in self.has:
            metal = (0.93, 0.78, 0.25) if self.rng.random() < 0.5 else (0.9, 0.9, 0.95)
            chain = 0.93 - 1.6 * self.u**2
            beads = 0.022 * (1 + 0.4 * np.sin(70 * self.u))
            self.paint(self.band(chain, beads, -0.24, 0.24), metal, "neck_l")
            self.paint(self.oval(0, 0.965, 0.035, 0.045), [0.9 * c for c in metal], "neck_l")

    def head(self) -> None:
        for side, part in ((-1, "l_ear"), (1, "r_ear")):
            self.paint(self.oval(side * (self.wide + 0.02), 0.1, 0.075, 0.13), [0.92 * c for c in self.skin], part)
            self.paint(self.oval(side * (self.wide + 0.025), 0.1, 0.035, 0.075), [0.78 * c for c in self.skin])
        depth = self.face()
        self.paint(depth, self.skin, "skin")
        # darker towards the edge, as round things are
        edge = (1 - depth / 0.16).clip(0, 1) ** 2 * (depth > 0)
        self.blend(0.22 * edge, [0.6 * c for c in self.skin])

    def skin_details(self) -> None:
        if "Bald" in self.has:
            self.glow(-0.12, -0.42, 0.16, 0.08, (1, 1, 1), 0.5)
        for side in (-1, 1):
            if "Rosy_Cheeks" in self.has:
                self.glow(side * 0.29, 0.27, 0.14, 0.11, (0.93, 0.36, 0.40), 0.75)
            if "Bags_Under_Eyes" in self.has:
                x = side * 0.22
                sag = self.band(0.115 - 1.6 * (self.u - x) ** 2, 0.028, x - 0.12, x + 0.12)
                self.paint(sag, [0.45 * c for c in self.skin[:2]] + [0.55 * self.skin[2]], strength=0.8)

    def eyes(self) -> None:
        iris = ((0.30, 0.45, 0.65), (0.30, 0.20, 0.12), (0.28, 0.42, 0.25))[self.rng.integers(3)]
        high = self.rng.uniform(0.024, 0.03) if "Narrow_Eyes" in self.has else self.rng.uniform(0.056, 0.072)
        look = self.rng.normal(0, 0.012)
        for side, part in ((-1, "l_eye"), (1, "r_eye")):
            x = side * 0.22
            eye = self.oval(x, 0, 0.115, high)
            self.paint(self.oval(x, -0.008, 0.125, high + 0.016), [0.45 * c for c in self.skin], part)
            self.paint(eye, (0.96, 0.96, 0.96), part)
            self.paint(np.minimum(eye, self.oval(x + look, 0, 0.05, 0.05)), iris)
            self.paint(np.minimum(eye, self.oval(x + look, 0, 0.025, 0.025)), (0.04, 0.04, 0.04))

    def brows(self) -> None:
        half = self.rng.uniform(0.042, 0.05) if "Bushy_Eyebrows" in self.has else self.rng.uniform(0.014, 0.019)
        arch = self.rng.uniform(5.5, 7) if "Arched_Eyebrows" in self.has else self.rng.uniform(0, 1)
        colour = [0.6 * c for c in self.hair]
        for side, part in ((-1, "l_brow"), (1, "r_brow")):
            x = side * 0.225
            middle = -0.165 + arch * ((self.u - x) ** 2 - 0.007)
            self.paint(self.band(middle, half, x - 0.13, x + 0.13), colour, part)

    def nose(self) -> None:
        half = self.rng.uniform(0.16, 0.19) if "Big_Nose" in self.has else self.rng.uniform(0.08, 0.095)
        top, tip = 0.06, 0.27
        slope = half * (0.25 + 0.75 * ((self.v - top) / (tip - top)).clip(0, 1) ** 1.5)
        depth = np.maximum(
            np.minimum(slope - np.abs(self.u), np.minimum(self.v - top, tip - self.v)), self.oval(0, tip, half, 0.45 * half)
        )
        self.paint(depth, [min(1, 0.94 * c) for c in self.skin], "nose")
        self.glow(0, tip - 0.02, 0.35 * half, 0.05, [min(1, 1.12 * c) for c in self.skin], 0.5)
        self.blend(0.4 * (1 - np.abs(np.abs(self.u) - slope) / 0.03).clip(0, 1) * (depth > -0.01), [0.6 * c for c in self.skin])
        for side in (-1, 1):
            self.paint(self.oval(side * 0.5 * half, tip + 0.22 * half, 0.24 * half, 0.13 * half), [0.35 * c for c in self.skin])

    def goatee(self) -> None:
        if "Goatee" in self.has:
            tuft = np.minimum(self.oval(0, self.chin - 0.05, 0.17, 0.13), self.face() + 0.03)
            self.paint(tuft, 0.75 * self.strands(), "skin")

    def mouth(self) -> None:
        smiles, opens = "Smiling" in self.has, "Mouth_Slightly_Open" in self.has
        half = self.rng.uniform(0.22, 0.25) if smiles else self.rng.uniform(0.15, 0.18)
        lip = self.rng.uniform(0.05, 0.06) if "Big_Lips" in self.has else self.rng.uniform(0.022, 0.028)
        red: Sequence[float] = REDS[self.rng.integers(len(REDS))]
        if "Wearing_Lipstick" not in self.has:
            red = [0.55 * c + more for c, more in zip(self.skin, (0.28, 0.12, 0.12), strict=True)]
        bend = 1.9 if smiles else self.rng.uniform(-0.3, 0.2)
        middle = 0.49 - bend * (self.u**2 - 0.4 * half**2)
        full = np.sqrt((1 - (self.u / half) ** 2).clip(0, 1))  # thick in the middle, nothing at the corners
        gap, thick = ((0.026 if smiles else 0) + (0.04 if opens else 0)) * full, lip * full
        self.paint(self.band(middle - gap - thick, thick, -half, half), red, "u_lip")
        self.paint(self.band(middle + gap + thick, thick, -half, half), [0.92 * c for c in red], "l_lip")
        if smiles or opens:
            hole = self.band(middle, gap, 0.01 - half, half - 0.01)
            self.paint(hole, (0.22, 0.04, 0.05), "mouth")
            if smiles:  # the upper teeth
                self.paint(np.minimum(hole, 0.052 + middle - gap - self.v), (0.97, 0.97, 0.95))
        else:
            self.paint(self.band(middle, 0.008, -half, half), [0.5 * c for c in red])

    def mustache(self) -> None:
        if "Mustache" in self.has:
            hangs = self.band(0.385 + 0.9 * self.u**2, 0.045 - 0.1 * np.abs(self.u), -0.24, 0.24)
            self.paint(hangs, 0.75 * self.strands(), "skin")

    def hair_above(self) -> None:
        if "Bald" in self.has or "Wearing_Hat" in self.has:
            return
        line = -0.36 + 0.55 * self.u**2 if self.rng.random() < 0.5 else -0.38 + 0.35 * np.abs(self.u + 0.15)
        cap = self.oval(0, -0.02, self.wide + 0.12, 0.68)
        depth = np.minimum(cap, line - self.v)
        if "Bangs" in self.has:
            fringe = -0.2 + 0.025 * np.sin(38 * self.u) + 0.2 * self.u**2
            depth = np.maximum(depth, np.minimum(np.minimum(cap, fringe - self.v), self.wide - np.abs(self.u)))
        # beside the face down to the ears
        temple = np.minimum(cap, np.minimum(np.abs(self.u) - (self.wide - 0.06), 0.02 - self.v))
        self.paint(np.maximum(depth, temple), self.strands(), "hair")

    def glasses(self) -> None:
        if "Eyeglasses" not in self.has:
            return
        rim = _near((0.12, 0.1, 0.1), self.rng, 0.08)
        tall, thick = self.rng.uniform(0.11, 0.14), 0.02
        for side in (-1, 1):
            lens = self.oval(side * 0.225, 0.01, 0.165, tall)
            frame = thick - np.abs(lens)
            skin = self.parts == COMPONENTS.index("skin")
            self.parts[(lens > 0) & skin] = COMPONENTS.index("eye_g")
            self.blend(0.15 * (lens / self.pixel + 0.5).clip(0, 1), (0.75, 0.85, 0.95))
            self.paint(frame, rim, "eye_g")
            ends = sorted((side * 0.385, side * (self.wide + 0.01)))
            self.paint(self.band(-0.02, 0.014, *ends), rim, "eye_g")
        self.paint(self.band(-0.02, 0.014, -0.07, 0.07), rim, "eye_g")

    def hat(self) -> None:
        if "Wearing_Hat" not in self.has:
            return
        colour = _near([self.rng.uniform(0.15, 0.75)] * 3, self.rng, 0.12)
        top = self.rng.uniform(0.62, 0.8)
        crown = np.minimum(self.oval(0, -0.3, self.wide + 0.1, top), -0.3 - self.v)
        brim = self.oval(0, -0.31, self.wide + self.rng.uniform(0.13, 0.3), 0.085)
        self.paint(crown, colour, "hat")
        self.paint(self.band(-0.42, 0.05, -self.wide - 0.09, self.wide + 0.09), [0.5 * c for c in colour], "hat")
        self.paint(brim, [0.8 * c for c in colour], "hat")

    def earrings(self) -> None:
        if "Wearing_Earrings" not in self.has:
            return
        metal = (0.95, 0.80, 0.25) if self.rng.random() < 0.5 else (0.85, 0.92, 0.98)
        size, drop = self.rng.uniform(0.04, 0.05), self.rng.random() < 0.5
        for side in (-1, 1):
            x = side * (self.wide + 0.03)
            depth = self.oval(x, 0.27 + size, 0.8 * size, 1.7 * size) if drop else self.oval(x, 0.25, size, size)
            self.paint(depth + 0.012, (0.25, 0.2, 0.1), "ear_r")
            self.paint(depth, metal, "ear_r")


def _near(colour: Sequence[float], rng: np.random.Generator, spread: float) -> Colour:
    red, green, blue = np.clip(np.asarray(colour) + rng.normal(0, spread, 3), 0.02, 0.99).tolist()
    return red, green, blue
