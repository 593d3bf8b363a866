"""Wafer maps: the drawn ones with their exact masks, the rule that marks real ones, and WM-811K's files, honest or not."""

import os
import pickle
import struct
import types

import numpy as np
import pandas
import pytest
import torch
from scipy import ndimage

from ig2.errors import InputError
from ig2_bench.datasets.wafer import wm811k
from ig2_bench.datasets.wafer.drawn import CLASSES, draw_maps, one_hot
from ig2_bench.datasets.wafer.frames import read_frame
from ig2_bench.datasets.wafer.marks import mark, pieces

PATTERNS = [name for name in CLASSES if name not in ("Random", "None")]


def radius(size):
    axis = (torch.arange(size) + 0.5) * 2 / size - 1
    return torch.hypot(axis[:, None], axis)


def select(samples, name):
    return samples[samples.y == CLASSES.index(name)]


# -- drawn maps --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn():
    return draw_maps(30, seed=4)


def test_maps_are_codes_with_a_class_and_a_mask_each(drawn):
    assert drawn.x.shape == (270, 1, 56, 56) and drawn.x.dtype == torch.uint8 and drawn.x.unique().tolist() == [0, 1, 2]
    assert drawn.counts() == dict.fromkeys(CLASSES, 30)
    assert drawn.masks.dtype == torch.int8 and ((drawn.masks == -1) == (drawn.x[:, 0] == 0)).all()
    assert "drawn" in drawn.source and "seed 4" in drawn.source
    assert len({bytes(x.numpy().tobytes()) for x in drawn.x}) == 270


def test_the_seed_alone_decides_and_more_maps_keep_the_others():
    torch.manual_seed(1)
    few = draw_maps(2, seed=4)
    np.random.seed(7)  # noqa: NPY002 — that the global state does not matter is the point
    more = draw_maps(3, seed=4)
    rows = [3 * label + number for label in range(9) for number in range(2)]
    assert torch.equal(few.x, more.x[rows]) and torch.equal(few.masks, more.masks[rows])
    assert few.names == more[rows].names
    assert not torch.equal(few.x, draw_maps(2, seed=5).x)


@pytest.mark.parametrize("name", PATTERNS)
def test_dies_fail_on_the_pattern_and_seldom_beside_it(drawn, name):
    some = select(drawn, name)
    on, beside = some.masks == 1, some.masks == 0
    fails = some.x[:, 0] == 2
    assert on.flatten(1).any(dim=1).all()
    assert fails[on].float().mean() > 0.75
    assert fails[beside].float().mean() < (0.45 if name == "Near-full" else 0.15)


def test_patterns_lie_where_their_class_says(drawn):
    away = radius(56)
    for name, nearest, farthest in [("Center", 0, 0.7), ("Donut", 0.02, 0.95), ("Edge-Ring", 0.75, 1.1), ("Loc", 0.02, 0.98)]:
        on = select(drawn, name).masks == 1
        found = torch.cat([away[mask] for mask in on])
        assert nearest <= found.min() and found.max() <= farthest, name
    assert all(away[mask].max() > 0.9 and away[mask].min() > 0.3 for mask in select(drawn, "Edge-Loc").masks == 1)
    assert all(mask[26:30, 26:30].any() for mask in select(drawn, "Center").masks == 1)
    assert not any(mask[27:29, 27:29].any() for mask in select(drawn, "Donut").masks == 1)


def test_nothing_is_marked_on_random_and_normal_maps_and_near_full_ones_are_marked_where_they_fail(drawn):
    assert not (select(drawn, "Random").masks == 1).any() and not (select(drawn, "None").masks == 1).any()
    whole = ~(select(drawn, "Near-full").masks == 0).flatten(1).any(dim=1)
    assert 5 < whole.sum() < 20


def test_scratches_are_thin_and_some_are_bent_or_several(drawn):
    on = (select(drawn, "Scratch").masks == 1).numpy()
    # a scratch of two dies on the coarsest grid is five pixels wide; no square of seven fits into any
    assert not any(ndimage.binary_erosion(mask, np.ones((7, 7))).any() for mask in on)
    assert any(ndimage.binary_erosion(mask, np.ones((7, 7))).any() for mask in (select(drawn, "Center").masks == 1).numpy())
    several = [ndimage.label(mask, np.ones((3, 3)))[1] for mask in on]
    assert several.count(1) > 10 and sum(count > 1 for count in several) > 3


def test_one_hot_is_what_the_network_takes(drawn):
    x = one_hot(drawn.x[:4])
    assert x.shape == (4, 3, 56, 56) and x.dtype == torch.float32
    assert (x.sum(dim=1) == 1).all() and torch.equal(x.argmax(dim=1).to(torch.uint8), drawn.x[:4, 0])


def test_maps_come_in_other_sizes():
    assert draw_maps(1, size=25).x.shape == (9, 1, 25, 25)
    assert draw_maps(1, size=64).masks.shape == (9, 64, 64)


@pytest.mark.parametrize(
    "wrong", [{"per_class": 0}, {"per_class": 1.5}, {"per_class": 1, "size": 24}, {"per_class": 1, "size": "a"}]
)
def test_maps_cannot_be_drawn_from_nonsense(wrong):
    with pytest.raises(InputError, match="must be"):
        draw_maps(**wrong)


@pytest.mark.parametrize("codes", [torch.zeros(2, 56, 56), torch.zeros(2, 3, 56, 56), torch.full((1, 1, 4, 4), 3)])
def test_one_hot_takes_codes_alone(codes):
    with pytest.raises(InputError, match="expected codes"):
        one_hot(codes)


# -- the marking rule --------------------------------------------------------------------------------------------------


def overlap(found, truth):
    """Intersection over union of the marked places, for each map."""
    a, b = found == 1, truth == 1
    return (a & b).flatten(1).sum(dim=1) / (a | b).flatten(1).sum(dim=1).clamp(min=1)


def test_the_rule_agrees_with_the_exact_masks(drawn):
    found = mark(drawn.x, drawn.y)
    assert torch.equal(found == -1, drawn.masks == -1)
    scores = {name: float(overlap(found, drawn.masks)[drawn.y == CLASSES.index(name)].mean()) for name in PATTERNS}
    least = {
        "Center": 0.8, "Donut": 0.77, "Edge-Loc": 0.8, "Edge-Ring": 0.7, "Loc": 0.72, "Near-full": 0.97, "Scratch": 0.7,
    }  # fmt: skip
    assert all(scores[name] >= bound for name, bound in least.items()), scores
    assert sum(scores.values()) / len(scores) >= 0.8


def test_the_rule_without_the_class_agrees_less(drawn):
    # the same maps called by the next class's name
    other = (drawn.y + 1) % len(CLASSES)
    assert overlap(mark(drawn.x, other), drawn.masks)[drawn.y != CLASSES.index("None")].mean() < 0.45


def test_nothing_is_marked_where_there_is_no_pattern_to_mark(drawn):
    for name in ("Random", "None"):
        some = select(drawn, name)
        assert not (mark(some.x, some.y) == 1).any()


def test_maps_without_a_failing_die_are_marked_without_error():
    codes = torch.ones(9, 1, 56, 56, dtype=torch.uint8)
    codes[:, :, :5] = 0
    found = mark(codes, torch.arange(9))
    assert (found[:, 5:] == 0).all() and (found[:, :5] == -1).all()


def test_classes_may_come_in_another_order(drawn):
    some = drawn[::10]
    names = CLASSES[::-1]
    assert torch.equal(mark(some.x, len(CLASSES) - 1 - some.y, names), mark(some.x, some.y))


def test_the_rule_asks_for_square_maps_of_known_classes(drawn):
    with pytest.raises(InputError, match="square maps"):
        mark(drawn.x[:2, :, :30], drawn.y[:2])
    with pytest.raises(InputError, match="square maps"):
        mark(drawn.x[:3], drawn.y[:2])
    with pytest.raises(InputError, match="'Spiral'"):
        mark(drawn.x[:2], drawn.y[:2], ("Spiral",))


@pytest.mark.parametrize("corners", [False, True])
def test_pieces_are_those_of_scipy(corners):
    mask = torch.rand(20, 30, 31, generator=torch.Generator().manual_seed(1)) < 0.5
    mask[0] = False
    found = pieces(mask, corners).numpy()
    assert ((found > 0) == mask.numpy()).all()
    for mine, flags in zip(found, mask.numpy(), strict=True):
        theirs, count = ndimage.label(flags, np.ones((3, 3)) if corners else None)
        pairs = set(zip(mine[flags].tolist(), theirs[flags].tolist(), strict=True))
        # one number of mine for one of theirs, both ways
        assert len(pairs) == count == len({a for a, _ in pairs}) == len({b for _, b in pairs})


# -- bringing maps to size ---------------------------------------------------------------------------------------------


def test_a_thin_scratch_survives_in_every_row_and_column():
    lost = 0
    for place in range(64):
        codes = np.ones((2, 64, 64), dtype=np.uint8)
        codes[0, place] = codes[1, :, place] = 2
        row, column = wm811k.resize(codes, 56)
        assert (row == 2).all(axis=1).sum() == 1 and (row == 2).sum() == 56
        assert (column == 2).all(axis=0).sum() == 1 and (column == 2).sum() == 56
        nearest = codes[0][np.arange(56) * 64 // 56]
        lost += not (nearest == 2).any()
    assert lost == 8  # taking every eighth row away would have lost as many


@pytest.mark.parametrize("shape", [(64, 64), (97, 111), (212, 84)])
def test_a_slanted_scratch_stays_one_line(shape):
    codes = np.ones((1, *shape), dtype=np.uint8)
    for row in range(shape[0]):
        codes[0, row, row * shape[1] // shape[0]] = 2
        codes[0, row, min(row * shape[1] // shape[0] + 1, shape[1] - 1)] = 2
    line = wm811k.resize(codes, 56)[0] == 2
    assert ndimage.label(line, np.ones((3, 3)))[1] == 1
    assert line.any(axis=0).sum() > 50 and line.sum() < 4 * 56


def test_sparse_failures_of_a_large_map_do_not_fill_a_small_one():
    fails = np.random.default_rng(0).random((1, 200, 200)) < 0.08
    small = wm811k.resize(np.where(fails, 2, 1).astype(np.uint8), 56)
    assert (small == 2).mean() < 0.1


def test_small_maps_are_enlarged_die_by_die():
    codes = np.random.default_rng(0).integers(0, 3, (3, 28, 28)).astype(np.uint8)
    assert (wm811k.resize(codes, 56) == codes.repeat(2, axis=1).repeat(2, axis=2)).all()
    assert (wm811k.resize(codes, 28) == codes).all()


def test_what_is_half_outside_is_on_the_wafer():
    codes = np.zeros((1, 4, 4), dtype=np.uint8)
    codes[0, :2, 0] = 1  # half of the first quarter
    codes[0, 0, 2] = 1  # a quarter of the second
    codes[0, 2:, :2] = 2
    assert wm811k.resize(codes, 2)[0].tolist() == [[1, 0], [2, 0]]


# -- wm811k.npz --------------------------------------------------------------------------------------------------------

SPELT = ["Center", "Donut", "Edge-loc", "Edge-ring", "Local", "Near-full", "None", "Random", "Scratch"]


def save_npz(folder, **changes):
    made = draw_maps(6, seed=9, size=64)
    y = np.array([SPELT.index({"Loc": "Local"}.get(name, name if name in SPELT else name.capitalize())) for name in CLASSES])
    arrays = {"x": made.x[:, 0].numpy(), "y": y[made.y.numpy()].astype(np.uint8), "classes": np.array(SPELT)} | changes
    np.savez_compressed(folder / "wm811k.npz", **{name: value for name, value in arrays.items() if value is not None})
    return made


def test_an_npz_is_read_with_the_names_of_the_paper(tmp_path):
    made = save_npz(tmp_path)
    found = wm811k.load(tmp_path)
    assert found.classes == CLASSES and torch.equal(found.y, made.y)
    assert found.x.shape == (54, 1, 56, 56) and found.x.dtype == torch.uint8
    assert torch.equal(found.x[:, 0], torch.from_numpy(wm811k.resize(made.x[:, 0].numpy(), 56)))
    assert torch.equal(found.masks, mark(found.x, found.y))
    assert found.names[3] == "wm811k.npz 3" and "54 of 54 distinct maps" in found.source and "marked by a rule" in found.source
    bare = wm811k.load(tmp_path / "wm811k.npz", 64, marked=False)
    assert bare.masks is None and torch.equal(bare.x, made.x) and "rule" not in bare.source


def test_duplicates_are_skipped(tmp_path):
    made = draw_maps(2, size=56)
    x = made.x[:, 0].numpy()
    save_npz(tmp_path, x=np.concatenate([x, x[:5]]), y=np.zeros(23, dtype=np.int64))
    found = wm811k.load(tmp_path, marked=False)
    assert len(found) == 18 and "skipped: 5 duplicates" in found.source
    survey = wm811k.survey(tmp_path)
    assert survey.counts["Center"] == 23 and len(survey.duplicates) == 5
    assert survey.source == "WM-811K (wm811k.npz); loading skips 5 duplicates"
    assert ("wm811k.npz 0", "wm811k.npz 18") in survey.duplicates


def test_the_choice_is_balanced_and_seeded(tmp_path):
    save_npz(tmp_path, y=np.array([0] * 40 + [1] * 10 + [8] * 4))
    found = wm811k.load(tmp_path, per_class=6, marked=False)
    assert {name: count for name, count in found.counts().items() if count} == {"Center": 6, "Donut": 6, "Scratch": 4}
    assert found.names == wm811k.load(tmp_path, per_class=6, marked=False).names
    assert found.names != wm811k.load(tmp_path, per_class=6, marked=False, seed=1).names
    by_limit = wm811k.load(tmp_path, limit=12, marked=False)
    assert {name: count for name, count in by_limit.counts().items() if count} == {"Center": 4, "Donut": 4, "Scratch": 4}
    everything = wm811k.load(tmp_path, marked=False)
    train, test = everything.split(0.5)
    assert [train.counts()[name] for name in ("Center", "Donut", "Scratch")] == [20, 5, 2]
    assert not set(train.names) & set(test.names)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": None}, "classes missing"),
        ({"x": np.ones((54, 8), dtype=np.uint8)}, r"expected maps \(N, H, W\)"),
        ({"y": np.zeros(3, dtype=np.uint8)}, "a class for each"),
        ({"y": np.zeros(54)}, "a class for each"),
        ({"y": np.full(54, 9)}, "classes from 9 to 9"),
        ({"x": np.full((54, 64, 64), 7, dtype=np.uint8)}, "holds 7, expected codes"),
        ({"x": np.full((54, 64, 64), np.nan)}, "holds nan, expected codes"),
        ({"classes": np.array(["Spiral"] * 9)}, "has the class .*Spiral"),
        ({"x": np.array([print] * 54, dtype=object)}, "cannot be read"),
        ({"x": np.ones((0, 64, 64)), "y": np.zeros(0, dtype=int)}, "no map with a class"),
    ],
)
def test_what_is_wrong_with_an_npz_is_reported(tmp_path, changes, message):
    save_npz(tmp_path, **changes)
    with pytest.raises(InputError, match=message):
        wm811k.load(tmp_path)


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_an_npz_that_is_cut_short_is_reported(tmp_path, share):
    save_npz(tmp_path)
    whole = (tmp_path / "wm811k.npz").read_bytes()
    (tmp_path / "wm811k.npz").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match=r"wm811k\.npz is broken, probably cut short \(.*\): fetch it again"):
        wm811k.load(tmp_path)


def test_what_is_wrong_with_the_folder_or_the_arguments_is_reported(tmp_path):
    with pytest.raises(InputError, match="neither wm811k"):
        wm811k.load(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        wm811k.load(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"does not exist|cannot be read"):
        wm811k.load("a\0b")
    (tmp_path / "wm811k.npz").write_bytes(b"not a zip file")
    with pytest.raises(InputError, match="cannot be read"):
        wm811k.load(tmp_path)
    for wrong in ({"limit": 0}, {"per_class": -1}, {"size": 0}):
        with pytest.raises(InputError, match="must be"):
            wm811k.load(tmp_path, **wrong)


# -- LSWMD.pkl ---------------------------------------------------------------------------------------------------------


def nested(text):
    """As the public table has it: a table of one text, or an empty one."""
    cell = np.empty((1, 1) if text else (0, 0), dtype=object)
    cell[...] = text
    return cell


SIZES = [(30, 28), (45, 48), (64, 71), (27, 25), (56, 56)]
KINDS = ["none", "Edge-Ring", "", "Loc", "Near-full"]


def public_columns():
    rng = np.random.default_rng(0)
    return {
        "waferMap": [rng.integers(0, 3, size).astype(np.uint8) for size in SIZES],
        "dieSize": [1683.0, 2.0, 3.0, 4.0, 5.0],
        "lotName": ["lot1", "lot1", "lot2", "lot2", "lot3"],
        "waferIndex": [1.0, 2.0, 1.0, 2.0, 1.0],
        "trianTestLabel": [nested("Training"), nested("Test"), nested(""), [["Test"]], nested("Test")],
        "failureType": [nested(kind) if kind != "Loc" else [["Loc"]] for kind in KINDS],
    }


@pytest.fixture(scope="module")
def frame():
    return pandas.DataFrame(public_columns())


def is_what_was_public(found):
    assert [CLASSES[label] for label in found.y] == ["None", "Edge-Ring", "Loc", "Near-full"]
    labelled = [codes for codes, kind in zip(public_columns()["waferMap"], KINDS, strict=True) if kind]
    for codes, x in zip(labelled, found.x[:, 0], strict=True):
        assert torch.equal(x, torch.from_numpy(wm811k.resize(codes[None], 56)[0]))


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("storage", ["auto", "python"])
def test_a_table_that_pandas_pickled_is_read(tmp_path, protocol, storage):
    with pandas.option_context("mode.string_storage", storage):
        pandas.DataFrame(public_columns()).to_pickle(tmp_path / "LSWMD.pkl", protocol=protocol)
    found = wm811k.load(tmp_path)
    is_what_was_public(found)
    assert found.masks.shape == (4, 56, 56) and "LSWMD.pkl" in found.source
    assert wm811k.survey(tmp_path).counts["None"] == 1


def test_a_part_of_a_table_is_read_cell_by_cell(frame, tmp_path):
    part = frame[frame.waferIndex > 1].assign(lotName=["a", None])
    part.to_pickle(tmp_path / "part.pkl")
    columns = read_frame(tmp_path / "part.pkl")
    assert set(columns) == set(frame) and columns["lotName"].tolist() == ["a", None]
    assert columns["waferIndex"].tolist() == [2, 2] and columns["trianTestLabel"][1] == [["Test"]]
    assert (columns["waferMap"][1] == frame.waferMap[3]).all()


class Python2(pickle._Pickler):
    """Writes as Python 2 did: texts are bytes, and modules have their old names."""

    def old_text(self, value):
        value = value if isinstance(value, bytes) else value.encode("latin1")
        self.write(b"T" + struct.pack("<i", len(value)) + value)

    def save_global(self, obj, name=None):
        module = {"builtins": "__builtin__"}.get(obj.__module__, obj.__module__).replace("numpy._core", "numpy.core")
        self.write(f"c{module}\n{name or obj.__name__}\n".encode())

    def save_type(self, obj):
        self.save_global(obj)

    dispatch = {  # noqa: RUF012
        **pickle._Pickler.dispatch, bytes: old_text, str: old_text, type: save_type, types.FunctionType: save_global,
    }  # fmt: skip


def old_class(module, name, **members):
    return type(name, (), {"__module__": module, **members})


def test_the_public_file_of_python_2_and_pandas_0_19_is_read(tmp_path):
    """The layout of the file that is passed around: modules that no pandas of today has, and a tuple for the table's inside."""
    columns = public_columns()
    new_index = old_class("pandas.indexes.base", "_new_Index")

    def index(name, **content):
        return types.SimpleNamespace(reduced=(new_index, (old_class(f"pandas.indexes.{name.lower()}", name), content)))

    def block(names, dtype):
        values = np.empty((len(names), 5), dtype=dtype)
        for row, name in zip(values, names, strict=True):
            for place, cell in enumerate(columns[name]):
                row[place] = cell
        return {"values": values, "mgr_locs": np.array([list(columns).index(name) for name in names])}

    axes = [index("Index", data=np.array(list(columns), dtype=object)), index("RangeIndex", start=0, stop=5, step=1)]
    blocks = [
        block(["dieSize", "waferIndex"], float),
        block([n for n in columns if n not in ("dieSize", "waferIndex")], object),
    ]
    inside = (axes, [], [], {"0.14.1": {"axes": axes, "blocks": blocks}})
    manager = old_class("pandas.core.internals", "BlockManager", __getstate__=lambda self: inside)
    table = old_class("pandas.core.frame", "DataFrame", __getstate__=lambda self: {"_data": manager(), "_typ": "dataframe"})
    Python2.dispatch[types.SimpleNamespace] = lambda pickler, made: pickler.save_reduce(*made.reduced, obj=made)
    with (tmp_path / "LSWMD.pkl").open("wb") as file:
        Python2(file, protocol=2).dump(table())
    written = (tmp_path / "LSWMD.pkl").read_bytes()
    assert b"pandas.indexes.base\n" in written and b"numpy.core.multiarray\n" in written and b"numpy._core" not in written
    with pytest.raises(Exception, match=r"pandas|ascii|module"):  # pandas itself has forgotten this layout
        pandas.read_pickle(tmp_path / "LSWMD.pkl")
    is_what_was_public(wm811k.load(tmp_path))


class Runs:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_that_would_run_a_command_is_refused_and_does_not_run(frame, tmp_path, protocol):
    trap = tmp_path / "trap"
    hostile = frame.assign(lotName=pandas.Series([Runs(os.system, f"touch {trap}")] * 5, dtype=object))
    hostile.to_pickle(tmp_path / "LSWMD.pkl", protocol=protocol)
    with pytest.raises(InputError, match=r"asks for \w+\.system.* was not run"):
        wm811k.load(tmp_path)
    assert not trap.exists()
    pickle.loads((tmp_path / "LSWMD.pkl").read_bytes())  # what anybody else's reader would have done
    assert trap.exists()


@pytest.mark.parametrize(
    ("call", "arguments", "named"),
    [
        (eval, ("1",), "eval"),
        (getattr, ("a", "join"), "getattr"),
        (np.load, ("a",), "numpy.load"),
        (pandas.read_pickle, ("a",), "read_pickle"),
        (np.memmap, ("a",), "memmap"),
    ],
)
def test_every_other_name_is_refused_too(tmp_path, call, arguments, named):
    (tmp_path / "LSWMD.pkl").write_bytes(pickle.dumps(Runs(call, *arguments)))
    with pytest.raises(InputError, match=f"{named}, which a table"):
        wm811k.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "holds no table but list"),
        (np.dtype([("a", object)]), "of the kind 'V8'"),
        (np.zeros(3), "holds no table but array"),
    ],
)
def test_a_pickle_of_something_else_is_refused(tmp_path, content, message):
    (tmp_path / "LSWMD.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match=message):
        wm811k.load(tmp_path)


def test_data_outside_the_file_is_refused(tmp_path):
    (tmp_path / "LSWMD.pkl").write_bytes(b"Pelsewhere\n.")
    with pytest.raises(InputError, match="outside the file"):
        wm811k.load(tmp_path)


def test_broken_files_end_in_an_error_of_ours(frame, tmp_path):
    path = tmp_path / "LSWMD.pkl"
    frame.to_pickle(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        broken = bytearray(whole[: rng.integers(len(whole))] if rng.random() < 0.3 else whole)
        for place in rng.integers(len(broken), size=4) if broken else ():
            broken[place] = rng.integers(256)
        path.write_bytes(broken)
        try:
            wm811k.load(path, marked=False)
        except InputError:
            refused += 1
    assert refused > 150


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"failureType": None}, "failureType missing"),
        ({"failureType": ["Spiral"] * 5}, "has the class 'Spiral'"),
        ({"failureType": [[]] * 5}, "no map with a class"),
        ({"waferMap": [[1, 2]] * 5}, "map 0 is list of 2"),
        ({"waferMap": [np.full((30, 30), 5)] * 5}, "map 0 holds 5"),
    ],
)
def test_what_is_wrong_with_a_table_is_reported(tmp_path, changes, message):
    columns = public_columns() | changes
    pandas.DataFrame({name: cells for name, cells in columns.items() if cells is not None}).to_pickle(tmp_path / "LSWMD.pkl")
    with pytest.raises(InputError, match=message):
        wm811k.load(tmp_path)


def test_a_survey_names_every_broken_map(tmp_path):
    columns = public_columns() | {"waferMap": [np.full((30, 30), 5 if row == 3 else 1) for row in range(5)]}
    pandas.DataFrame(columns).to_pickle(tmp_path / "LSWMD.pkl")
    seen = []
    survey = wm811k.survey(tmp_path, watch=lambda done, total: seen.append((done, total)))
    assert len(survey.problems) == 1 and "map 2 holds 5" in survey.problems[0]
    assert seen[-1] == (4, 4) and survey.counts["Loc"] == 1
