"""IG²: which parts of an input made the model say A rather than B?"""

from typing import TYPE_CHECKING

from ig2 import methods
from ig2._utils.lazy import attach

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from ig2 import paths, references, rules, targets
    from ig2.attribution import Attribution
    from ig2.comparison import compare
    from ig2.errors import IG2Error, IG2Warning, InputError, MissingExtraError, ModelError, OutOfMemoryError
    from ig2.inputs import At, Fixed
    from ig2.methods import *  # noqa: F403
    from ig2.model import Model, Preparation, wrap
    from ig2.question import Question
    from ig2.runs import Reading, Saving, open, run
    from ig2.task import scores
else:  # the same names at run time, each imported when it is first used
    __getattr__, __dir__ = attach(
        __name__,
        {
            "attribution": ["Attribution"],
            "comparison": ["compare"],
            "errors": ["IG2Error", "IG2Warning", "InputError", "MissingExtraError", "ModelError", "OutOfMemoryError"],
            "inputs": ["At", "Fixed"],
            "methods": methods.__all__,
            "model": ["Model", "Preparation", "wrap"],
            "question": ["Question"],
            "runs": ["Reading", "Saving", "open", "run"],
            "task": ["scores"],
            "": ["paths", "references", "rules", "targets"],
        },
    )  # fmt: skip

__all__ = [
    "At", "Attribution", "Fixed", "IG2Error", "IG2Warning", "InputError", "MissingExtraError", "Model", "ModelError",
    "OutOfMemoryError", "Preparation", "Question", "Reading", "Saving", "compare", "methods", "open", "paths",
    "references", "rules", "run", "scores", "targets", "wrap",
]  # fmt: skip
__all__ += methods.__all__
