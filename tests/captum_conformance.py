"""Captum's own tests, unchanged, with the classes of `ig2.compat.captum` in place of Captum's.

    make test-captum CAPTUM=folder      # a checkout of Captum's repository, of the version that is installed

The names are replaced before any test is imported, so that a test that imports a class from Captum gets ours. Failures must
be in EXPECTED, with their reasons. Nothing of Captum's is kept here.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import ig2.compat.captum as ours

# the modules that define Captum's classes
HOMES = {
    "captum.attr._core.deep_lift": ("DeepLift", "DeepLiftShap"),
    "captum.attr._core.gradient_shap": ("GradientShap",),
    "captum.attr._core.input_x_gradient": ("InputXGradient",),
    "captum.attr._core.integrated_gradients": ("IntegratedGradients",),
    "captum.attr._core.kernel_shap": ("KernelShap",),
    "captum.attr._core.saliency": ("Saliency",),
    "captum.attr._core.layer.grad_cam": ("LayerGradCam",),
    "captum.attr._core.layer.layer_activation": ("LayerActivation",),
    "captum.attr._core.layer.layer_conductance": ("LayerConductance",),
    "captum.attr._core.layer.layer_deep_lift": ("LayerDeepLift", "LayerDeepLiftShap"),
    "captum.attr._core.layer.layer_gradient_shap": ("LayerGradientShap",),
    "captum.attr._core.layer.layer_gradient_x_activation": ("LayerGradientXActivation",),
    "captum.attr._core.layer.layer_integrated_gradients": ("LayerIntegratedGradients",),
}
FILES = (
    "test_deeplift_basic.py",
    "test_deeplift_classification.py",
    "test_gradient_shap.py",
    "test_input_x_gradient.py",
    "test_integrated_gradients_basic.py",
    "test_integrated_gradients_classification.py",
    "test_kernel_shap.py",
    "test_saliency.py",
    "layer/test_grad_cam.py",
    "layer/test_layer_activation.py",
    "layer/test_layer_conductance.py",
    "layer/test_layer_deeplift.py",
    "layer/test_layer_gradient_shap.py",
    "layer/test_layer_gradient_x_activation.py",
    "layer/test_layer_integrated_gradients.py",
)
TESTS = 218  # in these files, as of Captum 0.9

# a test that fails, by file and name, and why; docs/compat.md has the same list
ROUNDED = "logits near 3e5 in float32 are rounded by 0.03, and their softmax with them: it differs between batches"
DRAWN = "depends on Captum's draws, of a few points and baselines"
SEVERAL = "a layer of several tensors, or several layers at once: ours take one tensor of one layer"
SLOPES = "LayerIntegratedGradients(multiply_by_inputs=False) is not available"
UNUSED = "a layer that the output does not use is an error in ours, and zeros in Captum with allow_unused"
EXPECTED = {
    "test_deeplift_basic.py::test_relu_deepliftshap_baselines_as_func": "expects an AssertionError, ours is an InputError; "
    "a function may return numbers",
    "test_deeplift_basic.py::test_reusable_modules": "expects an error for a module used twice, ours handles it",
    "test_deeplift_classification.py::test_softmax_classification_batch_multi_baseline": ROUNDED,
    "test_deeplift_classification.py::test_softmax_classification_batch_zero_baseline": ROUNDED,
    "test_deeplift_classification.py::test_softmax_classification_multi_baseline": ROUNDED,
    "test_gradient_shap.py::test_classification": "depends on Captum's draws: with its own class it passed for 9 of 100 seeds",
    "test_gradient_shap.py::test_classification_baselines_as_function": "expects an AssertionError, ours is an InputError",
    "test_kernel_shap.py::test_simple_kernel_shap_with_show_progress": "expects the text of Captum's progress bar",
    "test_grad_cam.py::test_relu_gradcam_with_unused_layer": UNUSED,
    "test_grad_cam.py::test_simple_multi_input_non_conv": SEVERAL,
    "test_layer_activation.py::test_simple_multi_input_activation": SEVERAL,
    "test_layer_activation.py::test_simple_multi_layer_multi_output_activation": SEVERAL,
    "test_layer_activation.py::test_simple_multi_linear_activation": SEVERAL,
    "test_layer_activation.py::test_simple_multi_output_activation": SEVERAL,
    "test_layer_conductance.py::test_simple_input_multi_conductance": SEVERAL,
    "test_layer_deeplift.py::test_relu_deeplift_with_unused_layer": UNUSED,
    "test_layer_deeplift.py::test_relu_layer_deeplift_multiple_output": SEVERAL,
    "test_layer_deeplift.py::test_relu_layer_deepliftshap_multiple_output": SEVERAL,
    "test_layer_gradient_shap.py::test_basic_multi_input": DRAWN,
    "test_layer_gradient_shap.py::test_basic_multi_tensor_output": SEVERAL,
    "test_layer_gradient_shap.py::test_basic_multilayer": DRAWN,
    "test_layer_gradient_shap.py::test_basic_multilayer_with_add_args": DRAWN,
    "test_layer_gradient_x_activation.py::test_multi_layer_linear_gradient_activation": SEVERAL,
    "test_layer_gradient_x_activation.py::test_multi_layer_multi_gradient_activation": SEVERAL,
    "test_layer_gradient_x_activation.py::test_simple_multi_gradient_activation": SEVERAL,
    "test_layer_gradient_x_activation.py::test_simple_multi_gradient_activation_with_unused_layer": SEVERAL,
    "test_layer_integrated_gradients.py::test_compare_with_emb_patching_wo_mult_by_inputs": SLOPES,
    "test_layer_integrated_gradients.py::test_multiple_layers_multiple_input_outputs": SEVERAL,
    "test_layer_integrated_gradients.py::test_multiple_layers_multiple_inputs_shared_input": SEVERAL,
    "test_layer_integrated_gradients.py::test_multiple_layers_single_inputs": SEVERAL,
    "test_layer_integrated_gradients.py::test_multiple_tensors_compare_with_exp_wo_mult_by_inputs": SLOPES,
    "test_layer_integrated_gradients.py::test_multiple_tensors_compare_with_expected": SEVERAL,
    "test_layer_integrated_gradients.py::test_simple_multi_gradient_activation_with_unused_layer": SEVERAL,
}


class Outcomes:
    """Which tests passed and which failed."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = f"{Path(report.nodeid.partition('::')[0]).name}::{report.nodeid.rpartition('::')[2]}"
        if report.failed:
            self.failed.add(name)
        elif report.when == "call" and report.passed:
            self.passed.add(name)
        self.passed -= self.failed


def replace_classes() -> None:
    """Put our classes where Captum's are imported from."""
    public = importlib.import_module("captum.attr")
    for home, names in HOMES.items():
        module = importlib.import_module(home)
        for name in names:
            setattr(module, name, getattr(ours, name))
            setattr(public, name, getattr(ours, name))


def main(checkout: str, *options: str) -> int:
    """Run the tests of a checkout; 0 if they pass and fail as expected."""
    folder = Path(checkout) / "tests" / "attr"
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        print(f"{folder} has no {', '.join(missing)}: give the folder of a checkout of Captum's repository")
        return 2
    replace_classes()
    torch.set_num_threads(1)  # networks this small only wait for threads: 11 s, and 134 s beside other work
    outcomes = Outcomes()
    # importlib: the checkout's own `captum` must not shadow the one that is installed
    arguments = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", "/dev/null", f"--rootdir={checkout}"]
    arguments += ["--tb=no", "-W", "ignore", *options]  # --tb=short shows why tests fail
    pytest.main([*arguments, *(str(folder / name) for name in FILES)], [outcomes])
    surprises = sorted(outcomes.failed - set(EXPECTED))
    print(f"\n{len(outcomes.passed)} of {len(outcomes.passed | outcomes.failed)} tests of Captum passed unchanged")
    for name in sorted(outcomes.failed & set(EXPECTED)):
        print(f"fails as expected: {name}: {EXPECTED[name]}")
    for name in surprises:
        print(f"FAILS, and was not expected to: {name}")
    for name in sorted(outcomes.passed & set(EXPECTED)):
        print(f"passes, and was expected to fail: {name}: take it from the lists, here and in docs/compat.md")
    return 1 if surprises or len(outcomes.passed | outcomes.failed) < TESTS else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if sys.argv[1:] else f"usage: {sys.argv[0]} folder [options of pytest]")
