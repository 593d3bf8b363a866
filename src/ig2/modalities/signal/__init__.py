"""Signals and sounds: networks over channels in time."""

from typing import TYPE_CHECKING

from ig2._utils.lazy import attach

if TYPE_CHECKING:
    from ig2.modalities.signal.recordings import SignalSubject, subject
else:
    __getattr__, __dir__ = attach(__name__, {"recordings": ["SignalSubject", "subject"]})

__all__ = ["SignalSubject", "subject"]
