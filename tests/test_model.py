"""What `wrap` makes of a network: the representation, the score, preprocessing and bounds; and what it refuses."""

import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ig2
from ig2 import metrics
from ig2._engine.explicands import Explicands
from ig2._engine.session import Session
from ig2.errors import InputError, ModelError
from ig2.inputs import Fixed
from networks import made, refuses, uniform

X, REFERENCES = uniform(3, 4, seed=1), uniform(2, 4, seed=2)


def mlp() -> Any:
    return made(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)))


def representation(model: ig2.Model | nn.Module | Callable[..., Any], x: Any = X) -> Tensor:
    wrapped = model if isinstance(model, ig2.Model) else ig2.wrap(model)
    inputs = Explicands.of(x)
    with Session(wrapped, inputs) as session:
        return session.representation(inputs.data, torch.arange(len(inputs)))


def scores(model: ig2.Model, x: Any = X) -> Tensor:
    inputs = Explicands.of(x)
    with Session(model, inputs) as session:
        return session.scores(inputs.data, torch.arange(len(inputs)))


def same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-12, atol=1e-14)


class Net(nn.Module):
    """Two linear layers and a forward pass of the test's own."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)
        self.steps = forward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.steps(self, *args, **kwargs)


def net(forward: Callable[..., Any]) -> Any:
    return made(lambda: Net(forward))


# -- the representation ------------------------------------------------------------------------------------------------


def test_the_default_representation_is_the_input_of_the_last_linear_layer():
    network = mlp()
    assert same(representation(network), network[:4](X))
    assert not same(representation(network), network[:3](X))  # before the last tanh: the comparison can fail


def test_representation_by_name_side_module_and_output():
    network = mlp()
    for layer, depth in (("2", 3), ("2:output", 3), ("2:input", 2), (network[1], 2), ("output", 5)):
        assert same(representation(ig2.wrap(network, representation=layer)), network[:depth](X))
    # the logit, also where the probability is explained
    assert same(representation(ig2.wrap(network, representation="output", output="probability")), network(X))


def test_a_network_without_linear_layers_is_represented_by_its_output_and_more_axes_are_laid_flat():
    network, x = made(lambda: nn.Sequential(nn.Conv1d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Softplus())), X[:, None]
    assert same(representation(network, x), network(x))
    assert same(representation(ig2.wrap(network, representation="0"), x), network[0](x).flatten(1))


def test_the_last_linear_layer_is_the_last_that_runs_and_not_the_last_defined():
    network = made(lambda: nn.Sequential(OrderedDict(head=nn.Linear(6, 3), body=nn.Linear(4, 6))))
    network.forward = lambda x: network.head(torch.relu(network.body(x)))
    assert same(representation(network), torch.relu(network.body(X)))


def test_an_auxiliary_head_that_does_not_reach_the_output_is_passed_over():
    def forward(self: Net, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        logits = self.last(hidden)
        self.seen = self.last(hidden.detach() * 2)  # runs last, leads nowhere
        return logits

    network = net(forward)
    assert same(representation(network), torch.tanh(network.first(X)))


def test_a_reused_module_is_read_at_its_last_call_by_default_and_refused_by_name():
    step = nn.Linear(4, 4)
    network = made(lambda: nn.Sequential(OrderedDict(step=step, squash=nn.Tanh())))
    network.forward = lambda x: step(torch.tanh(step(torch.tanh(step(x)))))
    assert same(representation(network), torch.tanh(step(torch.tanh(step(X)))))
    refuses(ModelError, "'step' runs 3 times in one forward", lambda: representation(ig2.wrap(network, representation="step")))


def test_a_module_that_never_runs_cannot_be_the_representation():
    network = net(lambda self, x: self.first(x))
    refuses(ModelError, "'last' runs 0 times", lambda: representation(ig2.wrap(network, representation="last")))


def test_a_module_shared_under_two_names_goes_by_either():
    network = mlp()
    network.alias = network[0]
    network.forward = lambda x: nn.Sequential.forward(network[:5], x)
    assert same(representation(ig2.wrap(network, representation="alias")), network[0](X))
    assert same(representation(ig2.wrap(network, representation="0")), network[0](X))


def test_weight_tied_layers_are_told_apart():
    network = mlp()
    tied = nn.Sequential(network[0], nn.Tanh(), nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, 5)).double()
    tied[4].weight = network[0].weight
    assert same(representation(tied), tied[:4](X))


@pytest.mark.parametrize(
    "head",
    [
        lambda hidden, weight: F.linear(hidden, weight),
        lambda hidden, weight: hidden @ weight.T,
        lambda hidden, weight: torch.matmul(hidden, weight.t()),
        lambda hidden, weight: torch.mm(hidden, weight.transpose(0, 1)),
        lambda hidden, weight: torch.addmm(torch.ones(3, dtype=torch.float64), hidden, weight.t()),
    ],
    ids=["F.linear", "@ weight.T", "matmul", "mm", "addmm"],
)
def test_a_functional_head_is_an_error_only_where_the_representation_is_needed(head: Callable[..., Tensor]):
    network = net(lambda self, x: head(torch.tanh(self.first(x)), self.last.weight))
    refuses(ModelError, r"last linear map of this network is a", lambda: ig2.IG2(steps=2)(network, X, references=REFERENCES))
    assert ig2.IntegratedGradients(8)(network, X).relative_residual.max() < 1e-3
    named = ig2.wrap(network, representation="first")
    assert same(representation(named), network.first(X))


def test_a_matrix_that_is_no_weight_is_not_taken_for_a_head():
    smoothing = torch.rand(3, 3, dtype=torch.float64)
    network = net(lambda self, x: self.last(torch.tanh(self.first(x))) @ smoothing)
    assert same(representation(network), torch.tanh(network.first(X)))


@pytest.mark.parametrize("first", [True, False])
def test_in_place_activations_leave_the_points_and_the_representation_alone(first: bool):
    layers = [nn.ReLU(inplace=True)] if first else []
    network = made(lambda: nn.Sequential(*layers, nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)))
    plain = nn.Sequential(*[nn.ReLU() if isinstance(layer, nn.ReLU) else layer for layer in network])
    x = X - 0.5
    before = x.clone()
    for layer in (None, str(first + 0), f"{first + 1}:input", "output"):
        one, two = (ig2.wrap(n, representation=layer) for n in (network, plain))
        assert same(representation(one, x), representation(two, x))
        method = ig2.IG2(steps=3, step_size=0.1, rule=ig2.rules.trapezoid)
        assert same(method(one, x, references=REFERENCES).values, method(two, x, references=REFERENCES).values)
    assert torch.equal(x, before)
    linear_out = network[first + 0]
    assert (representation(ig2.wrap(network, representation=linear_out), x) < 0).any()  # read before the ReLU wrote on it


def test_wrong_names_get_suggestions():
    network = nn.Sequential(OrderedDict(features=nn.Linear(4, 5), classifier=nn.Linear(5, 3)))
    refuses(InputError, "'clasifier' names no module of this network;", lambda: ig2.wrap(network, representation="clasifier"))
    refuses(InputError, "choose from classifier, features", lambda: ig2.wrap(network, representation="xyz"))
    refuses(InputError, "after the colon goes 'input' or", lambda: ig2.wrap(network, representation="features:inputs"))
    refuses(InputError, "Linear is not a module of this network", lambda: ig2.wrap(network, representation=nn.Linear(2, 2)))
    refuses(InputError, "must be a module or its name, got 3", lambda: ig2.wrap(network, representation=3))
    refuses(InputError, "it has none; 'output' is the network's own", lambda: ig2.wrap(nn.ReLU(), representation="layer4"))


def test_a_layer_with_other_rows_than_samples_is_refused_as_representation():
    network = net(lambda self, x: self.last(torch.tanh(self.first(x.repeat(2, 1))))[: len(x)])
    refuses(ModelError, r"'last', the last linear layer, is \(2, 6\) for one", lambda: representation(network))


def test_a_representation_that_does_not_see_the_input_is_refused():
    ones = torch.ones(9, 1, dtype=torch.float64)
    network = net(lambda self, x: self.last(torch.tanh(self.first(x)) + self.position(ones[: len(x)])))
    network.position = nn.Linear(1, 6).double()
    with pytest.raises(ModelError, match=r"'position' has no gradient"):
        ig2.IG2(steps=2)(ig2.wrap(network, representation="position"), X, references=REFERENCES)


@pytest.mark.parametrize(
    ("distance", "text"),
    [
        (lambda a, b: (a - b).square().mean(), r"distance between 6 pairs of representations is Tensor float64 \(\): expected"),
        (lambda a, b: (a - b).square(), r"is Tensor float64 \(6, 6\): expected \(6,\)"),
        (lambda a, b: 1.0, r"is 1\.0: expected \(6,\)"),
        (lambda a, b: torch.from_numpy(a.detach().numpy()).sum(1), "has no gradient by the input"),
    ],
)
def test_a_distance_of_ones_own_gives_one_number_a_pair(distance: Callable[..., Any], text: str):
    refuses(ModelError, text, lambda: ig2.IG2(steps=2, distance=distance)(mlp(), X, references=REFERENCES))


class Named(nn.Module):
    """One with a layer that returns a dict."""

    class Inner(nn.Linear):
        def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            return {"out": super().forward(x)}

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.fc = self.Inner(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.inner(x)["out"])


def test_layers_with_tuples_and_keywords_can_be_read_where_there_is_one_tensor():
    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.fc = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(input=self.lstm(x)[0][:, -1])

    network, x = made(Text), X[:, None].repeat(1, 2, 1)
    assert same(representation(network, x), network.lstm(x)[0][:, -1])
    assert same(representation(ig2.wrap(network, representation="lstm:input"), x), x.flatten(1))
    assert same(representation(ig2.wrap(network, representation="lstm"), x), network.lstm(x)[0].flatten(1))
    refuses(ModelError, "layer returns", lambda: representation(ig2.wrap(made(Named), representation="inner"), X))


# -- kinds of networks -------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.rnn, self.fc = kind(4, 6, batch_first=True, num_layers=2, bidirectional=True), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.rnn(x)[0].mean(1))


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.fc = nn.MultiheadAttention(4, 2, dropout=0.1, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.attention(x, x, x)[0].mean(1))


class Encoding(nn.Module):
    """Masked positions count in the mean, as a careless user writes it."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, activation="gelu")
        self.encoder, self.fc = nn.TransformerEncoder(layer, 2), nn.Linear(4, 3)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.fc(self.encoder(x, src_key_padding_mask=mask).mean(1))


SEQUENCES = uniform(3, 5, 4, seed=3)


@pytest.mark.parametrize("build", [lambda: Recurrent(nn.LSTM), lambda: Recurrent(nn.GRU), Attending, Encoding])
def test_recurrent_and_attending_networks_are_complete(build: Callable[[], nn.Module]):
    network = made(build)
    result = ig2.IG2(steps=20, rule=ig2.rules.gauss(4))(network, SEQUENCES, references=SEQUENCES.flip(0)[:2] / 2)
    assert result.relative_residual.max() < 1e-3
    assert result.values.abs().max() > 0


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_padded_transformer_is_the_same_function_with_and_without_gradients():
    # PyTorch's fast path for passes without gradients fills padding with zeros, where the other path leaves values
    network = made(Encoding)
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 3:] = True
    with torch.no_grad():
        fast = network(SEQUENCES, mask)
    slow = network(SEQUENCES, mask)
    assert not torch.allclose(fast[0], slow[0], rtol=1e-3)  # what we guard against is there
    enabled = torch.backends.mha.get_fastpath_enabled()
    for representation_ in (None, "encoder.layers.1.linear2:input"):
        model = ig2.wrap(network, representation=representation_)
        result = ig2.IG2(steps=10, rule=ig2.rules.gauss(4))(
            model, (SEQUENCES, Fixed(mask)), target=[0, 1, 2], references=(SEQUENCES.flip(0) / 2,)
        )
        assert torch.allclose(result.output, slow.detach()[range(3), [0, 1, 2]])
        assert result.relative_residual.max() < 1e-3
    assert torch.backends.mha.get_fastpath_enabled() == enabled


def test_a_graph_network_with_a_sparse_adjacency():
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.out = nn.Linear(4, 5), nn.Linear(5, 3)
            self.register_buffer("adjacency", (torch.rand(5, 5) > 0.5).double().to_sparse())

        def forward(self, x: Tensor) -> Tensor:
            return self.out(torch.sparse.mm(self.adjacency, torch.tanh(self.fc(x)).T).T)

    network = made(Graph)
    assert same(ig2.IG2(steps=3)(network, X, references=REFERENCES).output, network(X).max(1).values.detach())


def test_parametrised_layers():
    network = mlp()
    plain = ig2.IG2(steps=5)(network, X, references=REFERENCES)
    nn.utils.parametrizations.weight_norm(network[4])
    nn.utils.parametrizations.weight_norm(network[2])
    assert same(representation(network), network[:4](X))
    assert torch.allclose(ig2.IG2(steps=5)(network, X, references=REFERENCES).values, plain.values)
    assert all(p.requires_grad for p in network.parameters())
    with pytest.warns(FutureWarning):  # the older form, whose weight is a plain attribute made anew in each pass
        nn.utils.weight_norm(network[0])
    assert torch.allclose(ig2.IG2(steps=5)(network, X, references=REFERENCES).values, plain.values)


@pytest.mark.slow
def test_replicated_and_compiled_networks_are_unwrapped():
    network = mlp()
    assert ig2.wrap(nn.DataParallel(network)).net is network
    assert ig2.wrap(torch.compile(network)).net is network
    assert ig2.wrap(torch.compile(nn.DataParallel(network))).net is network


def compiled_in_place(network: nn.Module) -> nn.Module:
    network.compile(backend="eager")
    return network


def compiled_forward(network: nn.Module) -> nn.Module:
    network.forward = torch.compile(network.forward, backend="eager")
    return network


def captured_by(network: Callable[..., Any]) -> int:
    """How many calls of operations are compiled when the network runs."""
    before = torch._dynamo.utils.counters["stats"]["calls_captured"]
    network(X)
    return torch._dynamo.utils.counters["stats"]["calls_captured"] - before


COMPILED: dict[str, Callable[[nn.Module], Callable[..., Any]]] = {
    "module": lambda network: torch.compile(network, backend="eager"),
    "in place": compiled_in_place,
    "forward": compiled_forward,
    "function": lambda network: torch.compile(lambda x: network(x), backend="eager"),
    "in a function": lambda network: (lambda compiled: lambda x: compiled(x))(torch.compile(network, backend="eager")),
    "in a module": lambda network: nn.Sequential(nn.Identity(), torch.compile(network, backend="eager")),
    "partial": lambda network: functools.partial(torch.compile(network, backend="eager")),
    "twice": lambda network: torch.compile(
        nn.Sequential(nn.Identity(), torch.compile(network, backend="eager")), backend="eager"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("compile_it", COMPILED.values(), ids=COMPILED)
@pytest.mark.parametrize("warm", [False, True])
def test_what_is_compiled_runs_as_written_and_stays_compiled(compile_it: Callable[[nn.Module], Callable[..., Any]], warm: bool):
    expected = ig2.IG2(steps=3)(mlp(), X, references=REFERENCES).values
    shap = ig2.DeepSHAP()(mlp(), X, references=REFERENCES).values
    torch._dynamo.reset()
    usual = captured_by(compile_it(mlp()))
    torch._dynamo.reset()
    network = compile_it(mlp())
    if warm:
        network(X)
    assert torch.equal(ig2.IG2(steps=3)(network, X, references=REFERENCES).values, expected)
    assert torch.equal(ig2.DeepSHAP()(network, X, references=REFERENCES).values, shap)
    assert captured_by(network) == (0 if warm else usual)


def test_threads_with_compiled_networks_leave_the_compiler_on():
    networks = [torch.compile(nn.Sequential(nn.Identity(), mlp()), backend="eager") for _ in range(3)]
    failures: list[BaseException] = []

    def explain(network: Callable[..., Any]) -> None:
        try:
            for _ in range(5):
                ig2.IG2(steps=3)(lambda x: network(x), X, references=REFERENCES)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=explain, args=(network,)) for network in networks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    torch._dynamo.reset()
    assert captured_by(torch.compile(mlp(), backend="eager"))


def test_the_modules_of_a_decorated_function_are_its_parts():
    network, head = mlp(), nn.Linear(3, 2).double()

    def headed(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(x: Tensor) -> Tensor:
            return head(function(x))

        return call

    assert {network, head} <= set(ig2.wrap(headed(lambda x: network(x))).net.modules())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("compile_", [torch.jit.script, lambda n: torch.jit.trace(n, X)], ids=["script", "trace"])
def test_scripted_networks_need_their_representation_at_the_output(compile_: Callable[[nn.Module], nn.Module]):
    network = mlp()
    scripted = compile_(network)
    assert torch.allclose(ig2.IntegratedGradients(9)(scripted, X).values, ig2.IntegratedGradients(9)(network, X).values)
    refuses(ModelError, "scripted or traced network cannot be", lambda: ig2.IG2(steps=3)(scripted, X, references=REFERENCES))
    refuses(InputError, "scripted or traced network cannot be read", lambda: ig2.wrap(scripted, representation="2:input"))
    one, two = (ig2.IG2(steps=3)(ig2.wrap(n, representation="output"), X, references=REFERENCES) for n in (scripted, network))
    assert torch.allclose(one.values, two.values)


def test_exported_programs():
    network = mlp()
    program = torch.export.export(network, (X,), dynamic_shapes=({0: torch.export.Dim.AUTO},)).module()
    assert torch.allclose(ig2.IntegratedGradients(9)(program, X).values, ig2.IntegratedGradients(9)(network, X).values)
    refuses(ModelError, r"a call of linear.*not a layer that can", lambda: ig2.IG2(steps=3)(program, X, references=REFERENCES))
    assert same(representation(ig2.wrap(program, representation="output")), network(X))


def test_a_network_for_one_sample_at_a_time_runs_with_batch_size_one():
    network = mlp()
    program = torch.export.export(network, (X[:1],)).module()
    refuses(ModelError, "takes one sample and fails on two: use batch_size=1", lambda: ig2.IntegratedGradients(3)(program, X))
    one, many = ig2.IntegratedGradients(3)(program, X, batch_size=1), ig2.IntegratedGradients(3)(network, X)
    assert torch.allclose(one.values, many.values)


def test_plain_functions_show_the_network_they_call():
    network = mlp()

    class Holder:
        def __init__(self) -> None:
            self.network = network

        def __call__(self, x: Tensor) -> Tensor:
            return self.network(x)

        def method(self, x: Tensor) -> Tensor:
            return self.network(x)

    expected = ig2.IG2(steps=4)(network, X, references=REFERENCES).values
    functions = (
        lambda x: (network(x), 0)[0],
        network.forward,
        functools.partial(network),
        functools.partial(lambda x, scale: network(x) * scale, scale=1),
        Holder(),
        Holder().method,
    )
    for function in functions:
        assert torch.equal(ig2.IG2(steps=4)(function, X, references=REFERENCES).values, expected)
        assert all(p.requires_grad and p.grad is None for p in network.parameters())
    model = ig2.wrap(functions[0], representation="network.1")
    assert same(representation(model), network[:2](X))
    network.train()[1] = nn.Dropout(0.5)
    refuses(ModelError, r"train mode: network\.1 \(Dropout\)", lambda: ig2.IntegratedGradients()(functions[0], X))


def test_a_function_that_hides_its_network_takes_a_module_as_representation():
    network = mlp()
    hidden = [network]
    function = lambda x: hidden[0](x)  # noqa: E731
    refuses(ModelError, r"representation=.*with a module or its name", lambda: representation(function))
    assert same(representation(ig2.wrap(function, representation=network[3])), network[:4](X))


def test_what_is_no_network_is_refused():
    for wrong, text in ((X, "got Tensor float64"), ("resnet", "got 'resnet'"), (nn.ReLU, "class ReLU"), (None, "got None")):
        with pytest.raises(InputError, match=text):
            ig2.wrap(wrong)

    class Estimator:
        def predict(self, rows):
            return rows[:, 0]

    refuses(InputError, r"got .*Estimator.* predict_proba", lambda: ig2.wrap(Estimator()))
    refuses(InputError, "this is wrapped already: Model", lambda: ig2.wrap(ig2.wrap(mlp())))
    refuses(InputError, "output='logits' is unknown: use one of 'logit',", lambda: ig2.wrap(mlp(), output="logits"))
    refuses(InputError, "preprocess must be a function or a module, got 3", lambda: ig2.wrap(mlp(), preprocess=3))


def test_weights_that_cannot_take_part_in_autograd_are_refused():
    with torch.inference_mode():
        network = nn.Linear(4, 3).double()
    refuses(ModelError, r"made in torch.inference_mode\(\)", lambda: ig2.IntegratedGradients()(network, X))
    assert all(p.requires_grad for p in network.parameters())
    refuses(ModelError, "has no weights yet: run the", lambda: ig2.IntegratedGradients()(nn.Sequential(nn.LazyLinear(3)), X))


# -- the score ---------------------------------------------------------------------------------------------------------


def test_what_is_explained():
    network = mlp()
    logits = network(X).detach()
    for output, expected in (
        ("logit", logits),
        ("probability", logits.softmax(1)),
        ("log-probability", logits.log_softmax(1)),
        ("sigmoid", logits.sigmoid()),
        (lambda logits: logits[:, 1] - logits[:, 0], (logits[:, 1] - logits[:, 0])[:, None]),
        (nn.Softmax(dim=1), logits.softmax(1)),
    ):
        assert same(scores(ig2.wrap(network, output=output)), expected)


def test_a_single_output_is_a_regression_or_a_binary_logit():
    network = made(lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)))
    value = network(X).detach()
    for output, expected in (("logit", value), ("probability", value.sigmoid()), ("log-probability", value.sigmoid().log())):
        assert same(scores(ig2.wrap(network, output=output)), expected)
    for squeezed in (lambda x: network(x).squeeze(-1), lambda x: network(x).squeeze()):
        result = ig2.IntegratedGradients(20)(squeezed, X)
        assert torch.equal(result.values, ig2.IntegratedGradients(20)(network, X).values)
        assert same(ig2.IntegratedGradients(20)(squeezed, X[:1]).values, result.values[:1])
        assert result.target.tolist() == [0, 0, 0]
    network = mlp()
    squeezed = ig2.IntegratedGradients(20)(lambda x: network(x).squeeze(), X[:1], target=2)
    assert same(squeezed.values, ig2.IntegratedGradients(20)(network, X[:1], target=2).values)


def test_multi_label_targets_are_independent():
    network = mlp()
    model = ig2.wrap(network, output="sigmoid")
    values = [ig2.IntegratedGradients(20)(model, X, target=label) for label in range(3)]
    for label, result in enumerate(values):
        assert same(result.output, network(X).sigmoid()[:, label].detach())
        assert result.relative_residual.max() < 1e-6


def test_a_second_softmax_is_worth_a_word():
    network = nn.Sequential(mlp(), nn.Softmax(dim=1))
    for output in ("probability", "log-probability"):
        with pytest.warns(ig2.IG2Warning, match="returns probabilities already.* use output='logit'") as caught:
            ig2.IntegratedGradients(3)(ig2.wrap(network, output=output), X)
        assert caught[0].filename == __file__  # it points at the call
    ig2.IntegratedGradients(3)(network, X)
    single = made(lambda: nn.Sequential(nn.Linear(4, 1)))
    nn.init.zeros_(single[0].weight), nn.init.ones_(single[0].bias)  # a logit of one is no probability
    ig2.IntegratedGradients(3)(ig2.wrap(single, output="probability"), X)


def test_an_output_module_is_frozen_checked_and_read():
    network, head = made(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh())), made(lambda: nn.Linear(5, 3))
    model = ig2.wrap(network, output=head)
    assert same(representation(model), network(X))
    assert head.weight.requires_grad and head.weight.grad is None
    refuses(ModelError, r"train mode: output \(Dropout\)", lambda: scores(ig2.wrap(network, output=nn.Dropout(0.5))))


class ModelOutput(OrderedDict[str, Tensor]):
    """As in transformers: a dict whose entries are attributes, and which cuts itself into a tuple."""

    def __getattr__(self, name: str) -> Tensor:
        return self[name]


@pytest.mark.parametrize(
    "pack",
    [
        lambda logits: (logits,),
        lambda logits: [logits],
        lambda logits: {"logits": logits, "hidden": logits * 2},
        lambda logits: SimpleNamespace(logits=logits, loss=None),
        lambda logits: ModelOutput(loss=logits.sum(), logits=logits),
    ],
    ids=["tuple", "list", "dict", "object", "ModelOutput"],
)
def test_scores_are_found_in_what_networks_return(pack: Callable[[Tensor], Any]):
    network = mlp()
    assert same(scores(ig2.wrap(lambda x: pack(network(x)))), network(X))
    assert same(representation(ig2.wrap(lambda x: pack(network(x)), representation="output")), network(X))


def test_ambiguous_returns_are_refused_with_a_way_out():
    network = mlp()
    refuses(ModelError, r"returned tuple of 2 .* output=lambda result:", lambda: scores(ig2.wrap(lambda x: (network(x), x))))
    refuses(ModelError, r"result\['out'\]", lambda: scores(ig2.wrap(lambda x: {"out": network(x), "aux": x})))
    assert same(scores(ig2.wrap(lambda x: {"out": network(x), "aux": x}, output=lambda r: r["out"])), network(X))
    refuses(ModelError, r"output function returned 'dog':", lambda: scores(ig2.wrap(network, output=lambda result: "dog")))


def test_outputs_without_a_class_axis_alone_are_refused():
    refuses(ModelError, r"\(1, 4, 6, 6\) for 1 sample:", lambda: scores(ig2.wrap(nn.Conv2d(3, 4, 3)), torch.rand(2, 3, 8, 8)))
    refuses(ModelError, "integers have no gradient; return scores, not labels", lambda: scores(ig2.wrap(lambda x: x.argmax(1))))
    with pytest.raises(ModelError, match="for 2 samples"):  # one number for the whole batch
        scores(ig2.wrap(lambda x: x.mean()))


# -- preprocessing and bounds ------------------------------------------------------------------------------------------


class Normalise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.1, 0.2, 0.3, 0.4]))
        self.gain = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) * self.gain


@pytest.mark.parametrize("as_module", [True, False])
def test_preprocessing_belongs_to_the_model(as_module: bool):
    network, normalise = mlp(), made(Normalise)
    model = ig2.wrap(network, preprocess=normalise if as_module else lambda x: (x - normalise.mean) * 2)
    method = ig2.IG2(steps=6, step_size=0.1)
    result = method(model, X, references=REFERENCES)
    whole = method(nn.Sequential(normalise, network), X, references=REFERENCES)
    assert same(result.values, whole.values) and same(result.gradcf, whole.gradcf)
    assert not torch.allclose(result.values, method(network, X, references=REFERENCES).values)
    assert normalise.gain.requires_grad and normalise.gain.grad is None


def test_preprocessing_of_several_inputs():
    network = mlp()
    two = lambda a, b: network(torch.cat([a, b], dim=1))  # noqa: E731
    x = (X[:, :1], X[:, 1:])
    model = ig2.wrap(two, preprocess=lambda a, b: (a * 2, b * 2))
    assert same(scores(model, x), network(X * 2))
    model = ig2.wrap(two, preprocess=lambda a, b: {"b": b * 2, "a": a * 2})
    assert same(scores(model, {"b": x[1], "a": x[0]}), network(X * 2))
    packed = ig2.wrap(lambda pack: network(pack["x"]), preprocess=lambda x: {"x": x * 2})
    assert same(scores(packed), network(X * 2))
    in_training = ig2.wrap(mlp(), preprocess=nn.Sequential(nn.Identity(), nn.Dropout(0.5)))
    refuses(ModelError, r"train mode: preprocess\.1 \(Dropout\)", lambda: scores(in_training))


@pytest.mark.parametrize(
    "bounds", [(0, 1), (0.0, 1.0), (torch.zeros(4), torch.ones(4)), (0, torch.ones(1)), (torch.tensor(0.0), 1)]
)
def test_bounds_hold_on_the_whole_path(bounds: Any):
    model = ig2.wrap(mlp(), bounds=bounds)
    result = ig2.IG2(steps=20, step_size=0.2)(model, X, references=REFERENCES, paths=True)
    assert result.paths.min() >= 0 and result.paths.max() <= 1
    free = ig2.IG2(steps=20, step_size=0.2)(mlp(), X, references=REFERENCES, paths=True)
    assert free.paths.min() < 0 or free.paths.max() > 1  # without bounds it leaves them: the check can fail


def test_bounds_are_in_the_precision_of_the_data():
    low = torch.full((1, 4), 0.1, dtype=torch.float64)
    assert float(torch.tensor(0.1)) > 0.1  # what float32 would make of the bound
    ig2.IntegratedGradients(2)(ig2.wrap(mlp(), bounds=(0.1, 1)), low)


def test_data_outside_the_bounds_and_senseless_bounds_are_refused():
    model = ig2.wrap(mlp(), bounds=(0, 0.5))
    refuses(InputError, r"x reaches from 0\..* to 0\.7.*outside the model's", lambda: ig2.IntegratedGradients()(model, X))
    refuses(InputError, r"x / 255", lambda: ig2.IntegratedGradients()(ig2.wrap(mlp(), bounds=(0, 1)), X * 255))
    ig2.IntegratedGradients()(ig2.wrap(mlp(), bounds=(0, 1)), X.clamp(max=0.5) * 2 + 1e-7)  # what rounding does
    ig2.IntegratedGradients()(ig2.wrap(mlp(), bounds=(0, math.inf)), X)
    refuses(InputError, r"\(0\.5, inf\)", lambda: ig2.IntegratedGradients()(ig2.wrap(mlp(), bounds=(0.5, math.inf)), X))
    for wrong in ((1, 0), (0, 0), (0, 1, 2), 3, "01", (0, float("nan")), (torch.zeros(4), torch.zeros(4))):
        with pytest.raises(InputError, match=r"bounds must be \(low, high\)"):
            ig2.wrap(mlp(), bounds=wrong)
    for shape in ((3,), (3, 4), (3, 1)):  # not a sample's, and not one for each explicand either
        fitting = ig2.wrap(mlp(), bounds=(torch.zeros(shape), torch.ones(shape)))
        with pytest.raises(InputError, match=r"do not fit samples \(4,\)"):
            ig2.IntegratedGradients()(fitting, X)


def test_a_feature_with_equal_bounds_never_moves():
    network, constant = mlp(), torch.tensor([0.0, 0, 0.5, 0])
    model = ig2.wrap(network, bounds=(constant, torch.tensor([1, 1, 0.5, 1])))
    x, references = X.clone(), REFERENCES.clone()
    x[:, 2] = references[:, 2] = 0.5
    for method in (ig2.IG2(20, step_size=0.2), ig2.IG2(20, schedule=ig2.paths.LineSearch()), ig2.GradCFE(5), ig2.GuidedIG(20)):
        result = method(model, x, references=references, paths=True)
        assert (result.paths[..., 2] == 0.5).all() and (result.paths[..., 1] != x[0, 1]).any()
        assert (result.values[:, 2] == 0).all() and result.values.isfinite().all()
    for own in ("UniformNoise", "MaximalDistance", "White"):
        drawn = ig2.ExpectedIG(4)(model, x, references=getattr(ig2.references, own)(), paths=True)
        assert (drawn.paths[..., 2] == 0.5).all()
    ig2.SmoothGrad(ig2.Gradient())(model, x)
    for metric in (metrics.Insertion(), metrics.Deletion(), metrics.MaxSensitivity(ig2.Gradient())):
        assert metric(model, ig2.Gradient()(model, x)).values.isfinite().all()
    refuses(InputError, r"feature 2 of x .*\(0\.5, 0\.5\)", lambda: ig2.Gradient()(model, X))


def test_bounds_that_cannot_be_name_the_feature():
    low = torch.tensor([0.0, 2, 0, 0])
    refuses(InputError, r"\(2, 1\) at feature 1", lambda: ig2.wrap(mlp(), bounds=(low, 1)))
    refuses(InputError, r"feature \(1, 2\)", lambda: ig2.wrap(mlp(), bounds=(0, torch.tensor([[1.0, 1, 1], [1, 1, math.nan]]))))


def test_a_wrapped_model_is_a_function_with_a_gradient():
    network, x = mlp(), X.clone().requires_grad_()
    model = ig2.wrap(network, output="probability", preprocess=lambda x: 2 * x)
    output = model(x)
    assert torch.equal(output, network(2 * x).softmax(dim=1))
    (slope,) = torch.autograd.grad(output[:, 1].sum(), x)
    assert same(slope, ig2.Gradient()(model, X, target=1).values)
    several = ig2.wrap(lambda x, shift, *, scale: network(x * scale + shift))
    given = {0: X, 1: ig2.Fixed(torch.ones_like(X)), "scale": ig2.Fixed(3.0)}
    assert same(several(given), network(X * 3 + 1))
    assert same(ig2.wrap(lambda x, shift: network(x + shift))((X, ig2.Fixed(1.0))), network(X + 1))
    refuses(InputError, "x must be a torch tensor, or a tuple or dict of them, got 3", lambda: model(3))


def test_the_repr_says_what_is_explained_where():
    network = mlp()
    assert repr(ig2.wrap(network, representation="2:input", output="probability", bounds=(0, 1))) == (
        "Model(Sequential: output probability, representation input of '2', bounds 0 to 1)"
    )
    assert repr(ig2.wrap(network.forward, representation="output")) == "Model(forward: output logit, representation output)"


def test_scores_are_what_the_network_says_in_batches_of_any_size():
    net = nn.Sequential(nn.Linear(4, 3)).double()
    x = torch.linspace(0, 1, 20, dtype=torch.float64).view(5, 4)
    for size in (1, 2, "auto"):
        assert torch.allclose(ig2.scores(net, x, batch_size=size), net(x).detach(), rtol=0, atol=1e-12)
    assert torch.allclose(ig2.scores(ig2.wrap(net, output="probability"), x), net(x).softmax(dim=1).detach())
