"""Quality against cost."""

import numpy as np
from matplotlib.path import Path
from matplotlib.text import Text

from ig2.errors import InputError
from ig2_bench.board.trade_off import trade_off
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


def test_no_label_stands_on_the_line_of_the_best():
    points = {
        "cheap": (0.3, 3.0),
        "good": (13.6, 66.4),
        "somewhat better": (27.0, 67.1),
        "below": (13.6, 64.8),
        "best": (534.0, 71.8),
    }
    figure = trade_off(points, ["cheap", "good", "somewhat better", "best"], cost="gradients", quality="won")
    (axes,) = figure.axes
    line = axes.lines[0]
    x, y = (np.asarray(values, dtype=float) for values in line.get_data())
    steps = np.column_stack([np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]])  # along the line, and up
    path, renderer = Path(axes.transData.transform(steps)), figure.canvas.get_renderer()
    assert not any(path.intersects_bbox(Text.get_window_extent(text, renderer), filled=False) for text in axes.texts)


def test_costs_of_zero_are_refused():
    refuses(InputError, "above 0", lambda: trade_off({"a": (0, 1)}, cost="", quality=""))
