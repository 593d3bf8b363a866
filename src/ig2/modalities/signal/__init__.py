"""Signals and sounds: networks over channels in time."""

from ig2.modalities.signal.recordings import Clip, SignalSubject, list_sounds, subject

__all__ = ["Clip", "SignalSubject", "list_sounds", "subject"]
