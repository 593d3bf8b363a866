"""Files of sound: WAV by the standard library, others by soundfile."""

from __future__ import annotations

import wave
from os import PathLike, fspath
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ig2._utils.files import check_regular
from ig2.errors import InputError, import_extra, reason

SUFFIXES = (".wav", ".flac", ".ogg")
LONGEST_SOUND = 10_000_000  # steps of time in a file


def read_sound(path: str | PathLike[str]) -> tuple[NDArray[np.float32], int]:
    """Read a sound file: integer WAV files with the standard library, others with the extra `sound` (soundfile).

    Args:
        path: the file.

    Returns:
        The sound (T, channels), from −1 to 1, and its rate in time steps per second.

    Raises:
        InputError: if the file is not a sound, is empty, or is too long.
    """
    check_regular(path)
    sound = _read_wav(path) if Path(path).suffix.lower() == ".wav" else None
    if sound is None:
        soundfile = import_extra("soundfile", "sound", f"reading {fspath(path)}")
        try:
            _check_length(path, soundfile.info(fspath(path)).frames)
            sound = soundfile.read(fspath(path), dtype="float32", always_2d=True)
        except RuntimeError as error:  # of libsndfile, about the file
            raise InputError(f"{path} cannot be read as sound: {reason(error)}") from error
    samples, rate = sound
    if not len(samples):
        raise InputError(f"{path} is empty: it has no steps of time")
    return samples, int(rate)


def _read_wav(path: str | PathLike[str]) -> tuple[NDArray[np.float32], int] | None:
    """Read an integer WAV file of 8 to 32 bits; None if its samples are not integers."""
    try:
        with wave.open(fspath(path), "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            _check_length(path, file.getnframes())
            content = file.readframes(file.getnframes())
    except wave.Error as error:
        if "unknown format" in str(error):  # such as floats
            return None
        raise InputError(f"{path} is no WAV file that can be read: {reason(error)}") from error
    except EOFError as error:
        raise InputError(f"{path} is no WAV file: it ends too early") from error
    content = content[: len(content) // (width * channels) * width * channels]  # a file that was cut
    if width == 1:
        numbers = np.frombuffer(content, dtype=np.uint8).astype(np.float32) - 128
    elif width == 3:
        padded = np.zeros((len(content) // 3, 4), dtype=np.uint8)
        padded[:, 1:] = np.frombuffer(content, dtype=np.uint8).reshape(-1, 3)
        numbers = (padded.view("<i4")[:, 0] >> 8).astype(np.float32)
    else:
        numbers = np.frombuffer(content, dtype=f"<i{width}").astype(np.float32)
    return (numbers / np.float32(2 ** (8 * width - 1))).reshape(-1, channels), rate


def _check_length(path: str | PathLike[str], steps: int) -> None:
    if steps > LONGEST_SOUND:
        raise InputError(f"{path} has {steps:,} steps of time, more than {LONGEST_SOUND:,}: cut out what is to be explained")
