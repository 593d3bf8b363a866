"""Which moments make a voice detector hear speech?

The network is Silero VAD (MIT licence), rebuilt here from plain torch layers so that gradients reach the sound. Its weights
come with the package silero-vad, of which nothing else is needed. They are those of the package's own model, silero_vad.jit,
whose probability of each chunk the network returns to 2e-7 (version 6.2.3); silero_vad_16k.safetensors beside it holds others:

    pip install --no-deps silero-vad
    python examples/voice.py speech.wav          # 16,000 steps a second, 0.9 s or longer
    ig2 explain speech.wav --model voice:build   # in this folder: pictures, numbers and a report
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import ig2
from ig2 import modalities
from ig2.metrics import Deletion

RATE, CHUNK, CONTEXT = 16_000, 512, 64
STEPS = 28 * CHUNK  # of sound that is explained: 0.9 s


class Voice(nn.Module):
    """The logit that there is speech, the mean over chunks of 32 ms: a spectrum, four convolutions and an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.conv1, self.conv2 = nn.Conv1d(129, 128, 3, 1, 1), nn.Conv1d(128, 64, 3, 2, 1)
        self.conv3, self.conv4 = nn.Conv1d(64, 64, 3, 2, 1), nn.Conv1d(64, 128, 3, 1, 1)
        self.lstm_cell, self.final_conv = nn.LSTMCell(128, 128), nn.Conv1d(128, 1, 1)

    def forward(self, sound: Tensor) -> Tensor:
        state, logits = None, []
        for chunk in functional.pad(sound, (CONTEXT, 0)).unfold(1, CONTEXT + CHUNK, CHUNK).unbind(1):
            spectrum = self.stft_conv(functional.pad(chunk[:, None], (0, CONTEXT), mode="reflect"))
            # clamped: the root has no gradient at silence
            power = (spectrum[:, :129].square() + spectrum[:, 129:].square()).clamp(min=1e-12).sqrt()
            for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
                power = layer(power).relu()
            state = self.lstm_cell(power[..., 0], state)
            logits.append(self.final_conv(state[0].relu()[..., None])[:, :, 0])
        return torch.cat(logits, dim=1).mean(dim=1)


def build() -> modalities.signal.SignalSubject:
    """The network as `ig2 explain` takes it: sound of 0.9 s in windows of 32 ms, contrasted with noise of several kinds."""
    package = importlib.util.find_spec("silero_vad")
    if package is None or package.origin is None:
        raise SystemExit("pip install --no-deps silero-vad")
    net = Voice()
    weights = torch.jit.load(Path(package.origin).parent / "data" / "silero_vad.jit").state_dict()
    tensors = [
        tensor for name, tensor in weights.items() if name.startswith("_model.")
    ]  # _model_8k is for 8,000 steps a second
    net.load_state_dict(dict(zip(net.state_dict(), tensors, strict=True)))  # in the same order under other names
    noise = torch.randn(8, STEPS, generator=torch.Generator().manual_seed(0)) * torch.logspace(-4, -0.5, 8)[:, None]
    return modalities.signal.subject(
        ig2.wrap(net.eval(), "output", bounds=(-1, 1)), STEPS, "T", ["speech"], rate=RATE, window=CHUNK / RATE,
        name="Silero VAD", outputs="numbers", clips=noise.clamp(-1, 1),
    )  # fmt: skip


if __name__ == "__main__":
    voice = build()
    batch = voice.read(sys.argv[1])
    # a surrogate has the speech's spectrum and no voice in it
    surrogates = ig2.references.PhaseRandomised(4, voice.time_axis)
    methods = {
        "Expected IG": (ig2.ExpectedIG(64, rule=ig2.rules.blended), surrogates),
        "Occlusion": (ig2.Occlusion(groups=voice.windows), ig2.references.TimeMean(voice.time_axis)),
        "Random": (ig2.Random(), None),
    }
    deletion = Deletion("mean", thresholds=28, features=voice.windows, output="model")
    for name, (method, references) in methods.items():
        attribution = voice.explain(batch, method, references=references)
        print(f"{name:12} deletion {float(deletion(voice.model, attribution).values):6.2f}  {attribution.verdict}")
        attribution.plot(f"voice-{name.split()[0].lower()}.png", titles=[f"{name}: {batch.names[0]}"])
