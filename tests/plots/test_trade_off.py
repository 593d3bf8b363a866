"""Quality against cost."""

from matplotlib.text import Text

from ig2.errors import InputError
from ig2.plots import trade_off
from networks import refuses

POINTS = {f"method {i}": (1.0 + i % 3, 0.1 * (i // 3)) for i in range(12)}


def test_every_method_is_a_point_with_a_label_that_covers_no_other():
    figure = trade_off(POINTS, ["method 0"], cost="gradients", quality="won")
    (axes,) = figure.axes
    assert axes.get_xscale() == "log" and not axes.yaxis_inverted() and axes.get_xlabel() == "gradients"
    assert sorted(text.get_text() for text in axes.texts) == sorted(POINTS)
    renderer = figure.canvas.get_renderer()
    boxes = [Text.get_window_extent(text, renderer) for text in axes.texts]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    bold = [text.get_text() for text in axes.texts if text.get_fontweight() == "bold"]
    assert bold == ["method 0"]


def test_costs_of_zero_are_refused():
    refuses(InputError, "above 0", lambda: trade_off({"a": (0, 1)}, cost="", quality=""))
