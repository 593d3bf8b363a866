"""What the model itself says of some samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ig2._engine.inputs import Inputs
from ig2._engine.memory import BatchSize
from ig2._engine.session import Session
from ig2._engine.task import Task
from ig2._utils.progress import Progress
from ig2.model import Model, wrap


def scores(model: Model | nn.Module | Callable[..., Any], x: Any, *, batch_size: int | Literal["auto"] = "auto") -> Tensor:
    """The explained output of every class, (B, classes), on x's device.

    Args:
        model: what `ig2.wrap` returned, or a network, which is then wrapped with the defaults.
        x: samples (B, ...), or a tuple or dict of tensors, as a method takes them; integers and booleans too, since no gradient
            is taken.
        batch_size: how many samples the network sees at once.
    """
    model = model if isinstance(model, Model) else wrap(model)
    with torch.inference_mode(False), torch.no_grad():
        inputs = Inputs.of(x, model.device, needs_gradient=False)
        with Session(model, inputs, check_mixing=batch_size != 1, prepares=False) as session:
            rows = torch.arange(len(inputs), device=inputs.data.device)
            batch = BatchSize(batch_size, session.bytes_per_point, session.device)
            task = Task(session, inputs.data, rows, torch.zeros_like(rows), 0, batch, Progress(False, "scores"))
            return task.scores(inputs.data, rows).to(inputs.home)
