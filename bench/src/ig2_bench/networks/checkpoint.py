"""A training that was stopped goes on after its last epoch, to the weights it would have had."""

from __future__ import annotations

import io
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ig2._utils.files import check_regular, write_file
from ig2.errors import reason, warn

SUFFIX = ".checkpoint"
BETWEEN_SECONDS = 10.0  # so that trainings of seconds write nothing


@dataclass
class Checkpoint:
    """The state of a training after an epoch, in a file until it ends.

    Args:
        path: of the file.
        parts: the network, its optimizer and schedule: what has a `state_dict`.
        generator: of batches and augmentation.
        device: where the training is; its random state is dropout's.
    """

    path: Path
    parts: dict[str, nn.Module | torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler]
    generator: torch.Generator
    device: torch.device
    state: dict[str, Any] = field(init=False, default_factory=dict)
    began: float = field(init=False, default_factory=time.monotonic)
    written: float = field(init=False, default_factory=time.monotonic)

    def __post_init__(self) -> None:
        try:
            check_regular(self.path)
            self.state = torch.load(self.path, map_location="cpu", weights_only=True)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except Exception as error:  # torch has many for a broken file
            warn(f"{self.path} is damaged ({reason(error)}): the training begins again")

    @property
    def losses(self) -> list[float]:
        """The mean loss of each epoch that is done."""
        return list(self.state.get("losses", ()))

    @property
    def seconds(self) -> float:
        """How long the training has taken, before it was stopped too."""
        return float(self.state.get("seconds", 0.0)) + time.monotonic() - self.began

    def restore(self) -> None:
        """Bring everything to where it was, random numbers too."""
        if not self.state:
            return
        for name, part in self.parts.items():
            part.load_state_dict(self.state[name])
        self.generator.set_state(self.state["generator"])
        torch.set_rng_state(self.state["random"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(self.state["cuda"], self.device)

    def save(self, losses: list[float]) -> None:
        """Write the state after an epoch, unless another was written just before.

        A full disk ends no training.
        """
        if time.monotonic() - self.written < BETWEEN_SECONDS:
            return
        self.written = time.monotonic()
        state: dict[str, Any] = {name: part.state_dict() for name, part in self.parts.items()}
        state |= {"losses": losses, "seconds": self.seconds}
        state |= {"generator": self.generator.get_state(), "random": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.device)
        content = io.BytesIO()
        torch.save(state, content)
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_file(self.path, content.getvalue())

    def remove(self) -> None:
        """Drop the file, when the training has ended."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
