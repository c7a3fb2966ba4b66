"""Whatever people have of their own images, as one listing."""

from pathlib import Path

from dualstudent.data.files import is_there
from dualstudent.data.folders import list_domains, list_folder
from dualstudent.data.listing import Listing
from dualstudent.data.tables import Columns, list_table
from dualstudent.errors import UserError


def list_images(
    data: Path,
    target: Path | None = None,
    unlabeled: str = "unlabeled",
    columns: Columns | None = None,
) -> Listing:
    """The images of a folder, of a table, or of a source and a target folder.

    Args:
        data: a folder with a folder per class, or a CSV or Parquet file of paths and labels.
        target: a folder to adapt to; then ``data`` is the source.
        unlabeled: the name of the folder of unlabeled images.
        columns: of the table; default: the usual names.

    Raises:
        UserError: if nobody could train with that; the message says what to change.
    """
    for path in filter(None, (data, target)):
        if not is_there(path):
            raise UserError(f"{path}: does not exist; give a folder, or a CSV or Parquet file")
    if target is not None:
        for path in (data, target):
            if not path.is_dir():
                raise UserError(f"{path}: is not a folder; adaptation is from folder to folder")
        return list_domains(data, target, unlabeled)
    return list_folder(data, unlabeled) if data.is_dir() else list_table(data, columns)
