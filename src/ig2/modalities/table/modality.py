"""Tables as a kind of data: their files, and rows of data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ig2.errors import InputError, describe, format_count, quote_names, reason
from ig2.modalities.modality import Modality
from ig2.modalities.samples import SampleList
from ig2.views import Bars

if TYPE_CHECKING:
    from ig2.modalities.base import Subject
    from ig2.modalities.editing import Editor
    from ig2.modalities.table.rows import TableSubject

FIRST_ROWS = 100  # that a command explains by default


class Tables(Modality):
    """Rows of tables."""

    name = "table"
    nouns = "rows of a table"
    shows = Bars
    maker = "ig2.modalities.table.subject"
    built_in = "breast-cancer"
    settings = ("classes",)
    takes_estimators = True
    most_files = 1
    suffixes = (".csv", ".tsv", ".parquet", ".pq")
    has_many = True
    in_rows = True
    can_edit = True
    reads_ahead = False  # a frame for all rows of a batch
    batch = 128
    keeps = "units"

    def wrap(self, net: Any, name: str, settings: Mapping[str, Any], source: Path | None = None) -> tuple[TableSubject, str]:
        import torch

        from ig2.modalities.table import estimators
        from ig2.modalities.table.columns import infer_columns
        from ig2.modalities.table.rows import subject

        if source is None:
            return super().wrap(net, name, settings)  # type: ignore[return-value]  # which raises
        classes = settings.get("classes")
        if not isinstance(net, torch.nn.Module):
            made: TableSubject = estimators.subject(net, source, classes, name=f"{name} ({type(net).__name__})")
            columns = f"{format_count(len(made.columns), 'column')}, {quote_names(made.units, 5)}"
            return made, f"{columns}, references from {source}, {made.describe_classes()}"
        inferred = infer_columns(source)
        features, names = sum(column.width for column in inferred), [column.name for column in inferred]
        device = next((tensor.device for tensor in [*net.parameters(), *net.buffers()]), None)
        try:
            with torch.no_grad():
                scores = net(torch.zeros(2, features, device=device))
            outputs = 1 if scores.ndim == 1 else scores.shape[1]
        except Exception as error:  # whatever the network raises
            raise InputError(
                f"{name} is a bare network, and does not take the {format_count(features, 'feature')} of {source}, "
                f"{quote_names(names, 5)} ({reason(error)}): let the function return "
                f"{self.maker}(net, columns, classes), where columns = ig2.modalities.table."
                f"infer_columns({str(source)!r}, leave_out=[...]) skips the columns that are not inputs"
            ) from error
        made = subject(net, inferred, classes, name=name, outputs="classes" if outputs > 1 else "numbers", rows=source)
        answer = made.describe_classes() if outputs > 1 else "one plain number as output"
        return made, (
            f"{format_count(len(names), 'column')}, {quote_names(names, 5)}, numbers less their mean and divided by their "
            f"standard deviation in {source}, {answer}"
        )

    def open(
        self,
        subject: Subject,
        files: Sequence[Path],
        texts: Sequence[str] = (),
        choose: Callable[[int], Sequence[int]] | None = None,
    ) -> SampleList:
        from ig2.modalities.table.cells import read_frame
        from ig2.modalities.table.rows import TableSubject

        assert isinstance(subject, TableSubject)
        frame = read_frame(files[0])
        names = [f"row {number}" for number in frame.index]
        chosen = range(min(FIRST_ROWS, len(frame))) if choose is None else choose(len(frame))
        return SampleList(names, lambda indices: subject.read(frame, lambda total: indices), chosen)

    def edit(self, subject: Subject) -> Editor:
        from ig2.modalities.table.editing import RowEditor

        return RowEditor(subject)

    def name_file(self, name: str, number: int) -> str:
        return name

    def extract(self, content: Any, column: str | None = None) -> Any:
        if isinstance(content, (tuple, list)) and content:
            content = content[0]  # a data set's (sample, label)
        if not isinstance(content, Mapping):
            raise InputError(f"the model reads rows, and this is {describe(content)}")
        return dict(content)


TABLES = Tables()
load = TABLES.load
