"""What takes no gradient asks for none: integers, detached functions, NumPy and scikit-learn."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import ig2
from ig2.errors import IG2Warning, InputError, ModelError
from ig2.metrics import (
    SIC,
    Completeness,
    Deletion,
    Faithfulness,
    Infidelity,
    Insertion,
    Marginal,
    MaxSensitivity,
    Monotonicity,
    conditional_shapley,
)
from networks import made, refuses, uniform
from networks import small_mlp as mlp

X, REFERENCES = uniform(3, 4, seed=1), uniform(2, 4, seed=2)
SHAP = ig2.KernelSHAP()
BOTH = [Insertion(output="model"), Deletion(output="model")]


# -- functions without gradients ---------------------------------------------------------------------------------------


def as_numbers(network: Any) -> dict[str, Any]:
    """The same function, each time returned as something that has no gradient."""
    return {
        "detached": lambda x: network(x.detach()),
        "array": lambda x: network(x).numpy(),
        "reversed array": lambda x: network(x).flip(1).numpy()[:, ::-1],
        "lists": lambda x: network(x).tolist(),
        "tuples": lambda x: tuple(map(tuple, network(x).tolist())),
        "through NumPy": lambda x: torch.from_numpy(network(torch.from_numpy(x.numpy())).numpy()),
        "output function": ig2.wrap(network, output=lambda raw: raw.numpy()),
    }


@pytest.mark.parametrize("kind", as_numbers(nn.Identity()))
def test_functions_without_gradients_are_explained_as_the_network_they_call(kind: str):
    network = mlp()
    function = as_numbers(network)[kind]
    expected = SHAP(network, X, references=REFERENCES)
    found = SHAP(function, X, references=REFERENCES)
    assert torch.allclose(found.values, expected.values, atol=1e-12)
    assert torch.allclose(ig2.scores(function, X), network(X))
    for metric in BOTH:
        assert torch.allclose(metric(function, found).values, metric(network, expected).values)


def test_one_number_a_sample_may_be_pythons():
    def total(x: Tensor) -> Any:
        return [float(row.sum()) for row in x] if len(x) > 1 else float(x.sum())

    assert torch.allclose(SHAP(total, X).values, X)
    assert torch.allclose(SHAP(lambda x: np.float64(x.sum()), X, batch_size=1).values, X)


@pytest.mark.parametrize("kind", as_numbers(nn.Identity()))
def test_a_gradient_method_says_which_need_none(kind: str):
    refuses(ModelError, "KernelSHAP", lambda: ig2.IntegratedGradients(4)(as_numbers(mlp())[kind], X))


def test_what_holds_no_numbers_is_refused_still():
    refuses(ModelError, "not one tensor of scores", lambda: SHAP(lambda x: np.array(["cat"] * len(x)), X))
    with pytest.raises(ModelError, match="not one tensor of scores"):
        SHAP(lambda x: [x.numpy(), x.numpy()], X)  # several outputs: which one?
    refuses(ModelError, "complex", lambda: SHAP(lambda x: torch.complex(x, x), X))


def test_other_metrics_of_scores_alone_take_functions_of_numpy():
    network = mlp()
    data = uniform(20, 4, seed=3)

    def function(x: Tensor) -> Any:
        return network(x).detach().numpy()

    metrics = [
        Faithfulness(Marginal(data)),
        Monotonicity(Marginal(data)),
        Infidelity(draws=20),
        Completeness(baseline=0.0),
        MaxSensitivity(SHAP, draws=2),
    ]
    expected, found = SHAP(network, X, 0), SHAP(function, X, 0)
    for metric in metrics:
        assert torch.allclose(metric(function, found).values, metric(network, expected).values, equal_nan=True), metric.name
    ours, theirs = (conditional_shapley(f, X, Marginal(data), 0, draws=20) for f in (function, network))
    assert torch.allclose(ours, theirs)
    refuses(ModelError, "KernelSHAP", lambda: MaxSensitivity(ig2.IntegratedGradients(4), draws=2)(function, found))


def test_information_curves_take_a_function_of_numpy():
    images = uniform(2, 1, 12, 12, seed=4)

    def function(x: Tensor) -> Any:
        return np.stack([x[:, :, :6].sum((1, 2, 3)).numpy(), x[:, :, 6:].sum((1, 2, 3)).numpy()], axis=1)

    model = ig2.wrap(function, bounds=(0, 1))
    attribution = ig2.Random()(model, images)
    assert SIC(least=0.0)(model, attribution).curves.shape == (2, 1001)


def test_memory_is_planned_for_what_a_pass_without_gradients_holds():
    seen = []

    def wide(x: Tensor) -> Any:
        seen.append(len(x))
        return x[:, :1].expand(-1, 1 << 20).clone().sum(dim=1).numpy()

    ig2.scores(wide, torch.ones(300, 2), batch_size="auto")
    assert 4 <= max(seen[2:]) <= 32  # of 4 MiB each, in 128 MiB


# -- integers and booleans ---------------------------------------------------------------------------------------------


class Bag(nn.Module):
    """Tokens to scores, which takes integers alone."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, ids: Tensor) -> Tensor:
        assert ids.dtype == torch.int64
        return self.head(self.embedding(ids).tanh().mean(dim=1))


IDS = torch.tensor([[3, 17, 41, 8], [9, 9, 0, 30]])


def test_integers_are_explained_as_what_they_stand_for():
    network = made(Bag)
    found = SHAP(network, IDS, target=1, references=torch.tensor([[1, 2, 1, 2]]))
    assert torch.equal(found.explicand, IDS)
    assert torch.allclose(found.total, found.output - found.baseline_output)
    # each token adds on its own
    with torch.no_grad():
        worth = network.head(network.embedding.weight.tanh())[:, 1] / 4
    assert torch.allclose(found.values, (worth[IDS] - worth[torch.tensor([1, 2, 1, 2])]).to(found.values), atol=1e-5)
    assert torch.allclose(ig2.scores(network, IDS), network(IDS))
    for metric in (Insertion(), Deletion()):
        assert metric(network, found).n == 2  # also as the attribution's own explicand


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool])
def test_every_integer_comes_back_as_it_was(dtype: torch.dtype):
    largest = 1 if dtype == torch.bool else min(torch.iinfo(dtype).max, 2**53 - 1)
    x = torch.tensor([[largest, 0, 1], [0, largest, 1]]).to(dtype)
    seen = []

    def network(points: Tensor) -> Tensor:
        assert points.dtype == dtype
        seen.append(points)
        return points.long().sum(dim=1)

    found = SHAP(network, x, references=torch.zeros_like(x[:1]))
    assert set(torch.cat(seen).flatten().tolist()) <= {0, 1, largest}
    assert torch.allclose(found.values, x.to(found.values))
    assert torch.equal(ig2.scores(network, x)[:, 0], x.double().sum(dim=1))


def test_integers_beside_floats_reach_the_network_as_they_were():
    def network(a: Tensor, b: Tensor) -> Any:
        assert (a.dtype, b.dtype) == (torch.int64, torch.float32)
        return (a.sum(dim=1) + b.double().sum(dim=1)).numpy()

    x = (torch.tensor([[2**40 + 1, 3], [4, 5]]), torch.rand(2, 3))
    found = SHAP(network, x)
    assert [value.dtype for value in found.explicand] == [torch.int64, torch.float32]
    assert torch.equal(found.explicand[0], x[0])
    assert torch.allclose(found.values[1], x[1].double(), atol=1e-3)
    assert Deletion(output="model")(network, found).n == 2


def test_a_point_between_integers_is_refused():
    network = made(Bag)
    refuses(InputError, "int64", lambda: SHAP(network, IDS, references=torch.full((1, 4), 0.5)))
    refuses(InputError, "int64", lambda: Infidelity(draws=4)(network, torch.rand(2, 4), IDS))
    refuses(InputError, "2⁵³", lambda: SHAP(lambda x: x.sum(1), torch.tensor([[2**53 + 1, 1]])))


def test_gradient_methods_refuse_integers_and_name_those_that_do_not():
    for method in (ig2.IntegratedGradients(4), ig2.Gradient(), ig2.XRAI(), ig2.SmoothGrad(ig2.Gradient())):
        with pytest.raises(InputError, match=r"int64.*KernelSHAP"):
            method(made(Bag), IDS)


def test_an_attribution_of_half_precision_is_scored_as_it_is():
    network = made(lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))).bfloat16()
    found = ig2.IntegratedGradients(4)(network, X.bfloat16())
    assert found.explicand.dtype == torch.bfloat16
    assert Insertion()(network, found).n == 3


# -- scikit-learn ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(0).normal(size=(200, 4))
    return rows, (rows[:, 0] + rows[:, 1] * rows[:, 2] > 0).astype(int)


def test_estimators_of_scikit_learn_are_explained(table: Any):
    rows, labels = table
    x, background = torch.from_numpy(rows[:3]), torch.from_numpy(rows[50:60])
    for estimator in (RandomForestClassifier(20, random_state=0), make_pipeline(StandardScaler(), LogisticRegression())):
        estimator.fit(rows, labels)
        found = SHAP(estimator.predict_proba, x, references=background)
        expected = estimator.predict_proba(rows[:3])
        assert torch.allclose(ig2.scores(estimator.predict_proba, x), torch.from_numpy(expected))
        assert torch.allclose(found.output, torch.from_numpy(expected.max(axis=1)))
        assert torch.allclose(found.total, found.output - found.baseline_output)
        assert found.values.abs().argmax(dim=1).tolist() != [3, 3, 3]
        by_label = SHAP(estimator.predict, x, references=background)
        assert torch.equal(by_label.output, torch.from_numpy(estimator.predict(rows[:3])).double())


def test_a_log_odds_is_what_kernel_shap_says_it_is(table: Any):
    rows, labels = table
    estimator = LogisticRegression().fit(rows, labels)
    x, background = torch.from_numpy(rows[:3]), torch.from_numpy(rows[50:60])
    found = SHAP(ig2.wrap(estimator.decision_function), x, references=background)
    expected = torch.from_numpy(estimator.coef_) * (x - background.mean(dim=0))
    assert torch.allclose(found.values, expected)


def test_curves_of_predict_proba_show_it_without_another_softmax(table: Any, recwarn: pytest.WarningsRecorder):
    rows, labels = table
    forest = RandomForestClassifier(20, random_state=0).fit(rows, labels)
    x = torch.from_numpy(rows[:3])
    found = SHAP(forest.predict_proba, x)
    scores = Insertion(thresholds=4)(forest.predict_proba, found)
    assert torch.allclose(scores.curves[:, -1], found.output)
    assert torch.allclose(scores.curves[:, 0], found.baseline_output)
    assert not [warning for warning in recwarn if issubclass(warning.category, IG2Warning)]


def test_a_function_is_called_with_arrays_where_that_is_asked_for():
    def network(rows: np.ndarray, scale: float) -> np.ndarray:
        assert isinstance(rows, np.ndarray)
        return rows.sum(axis=1) * scale

    model = ig2.wrap(network, numpy=True)
    assert torch.allclose(SHAP(model, (X, ig2.Fixed(2.0))).values[0], 2 * X)
    refuses(InputError, "numpy=True", lambda: ig2.wrap(nn.Linear(4, 2), numpy=True))
    refuses(ModelError, "KernelSHAP", lambda: ig2.Gradient()(model, (X, ig2.Fixed(2.0))))


def test_a_function_that_fails_is_called_once_and_its_error_is_quoted():
    calls = []

    def network(x: Any) -> Any:
        calls.append(type(x))
        raise TypeError("only arrays, please")

    refuses(ModelError, "only arrays, please", lambda: SHAP(network, X))
    assert calls == [Tensor]


# -- tensors without values --------------------------------------------------------------------------------------------


def test_meta_tensors_are_named():
    refuses(InputError, "meta", lambda: ig2.Gradient()(mlp(), torch.empty(2, 4, device="meta")))
    refuses(InputError, "meta", lambda: ig2.Gradient()(lambda a, b: a * b, (X, ig2.Fixed(X.to("meta")))))
    refuses(InputError, "meta", lambda: ig2.IntegratedGradients(4)(mlp(), X, references=X.to("meta")))
    refuses(ModelError, "meta", lambda: ig2.Gradient()(mlp().to("meta"), X))
    refuses(ModelError, "meta", lambda: ig2.scores(nn.Sequential(mlp(), nn.Linear(3, 3, device="meta").double()).eval(), X))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_named(layout: torch.layout):
    nested = torch.nested.nested_tensor([torch.rand(2), torch.rand(3)], layout=layout)
    for x in (nested, (X[:2], nested), (X[:2], ig2.Fixed(nested))):
        with pytest.raises(InputError, match="nested"):
            ig2.Gradient()(mlp(), x)
    refuses(InputError, "nested", lambda: ig2.IntegratedGradients(4)(mlp(), X, references=nested))
