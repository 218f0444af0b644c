"""Rows from the Hugging Face `datasets` library; imported only for a dataset with `"source": "huggingface"`."""

from __future__ import annotations

import datetime
import decimal
import itertools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_evalgrader.data.dataset import Rows
from pytest_evalgrader.errors import Problem, SuiteError
from pytest_evalgrader.suite.wording import did_you_mean, listing, quote

if TYPE_CHECKING:
    from pytest_evalgrader.suite.manifest import DatasetSpec

BUILDERS = ("json", "csv", "parquet", "text", "arrow")
"""Builders of the library that may be named as `path`. Others read pickles, databases or addresses."""

REFUSED_KWARGS = frozenset(
    [
        "cache_dir",
        "download_config",
        "download_mode",
        "storage_options",
        "streaming",
        "token",
        "trust_remote_code",
        "use_auth_token",
    ]
)
"""Arguments that run a dataset's own code, reach credentials or the network, or write outside the project."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_INSTALL = 'pip install "pytest-evalgrader[huggingface]"'


def load_hub_rows(spec: DatasetSpec, *, resolve: Callable[[str], Path], rootdir: Path, base: Path, where: str) -> Rows:
    """Load rows with the `datasets` library.

    Dates and times become ISO 8601 text and decimals become text; bytes, images and audio are an error.

    Args:
        spec: What the suite says of the dataset.
        resolve: Finds a file of the suite inside the project; raises SuiteError.
        rootdir: The project.
        base: The folder that the suite's paths are relative to.
        where: The place in the suite.

    Raises:
        SuiteError: The extra is not installed, a path leaves the project, an argument is not allowed, or the library
            cannot load the dataset.
    """
    for key in spec.dataset_kwargs or {}:
        if key == "trust_remote_code":
            raise _error(f"{where}.dataset_kwargs.{key}", "a dataset's own code is never run; remove the key.")
        if key in REFUSED_KWARGS:
            raise _error(
                f"{where}.dataset_kwargs.{key}", "not allowed in a suite; configure the datasets library outside it."
            )
    arguments = dict(spec.dataset_kwargs or {})
    path, local = _path(spec.path or "", rootdir, base, where)
    if spec.data_files is not None:
        arguments["data_files"] = _data_files(spec.data_files, resolve, rootdir, base, where, local=local)
    if "data_dir" in arguments:
        arguments["data_dir"] = _data_dir(arguments["data_dir"], rootdir, base, where, local=local)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, not the user's
        try:
            import datasets
        except ImportError as error:
            message = f"this dataset needs the Hugging Face extra: {_INSTALL}"
            if error.name != "datasets":
                message += f" (importing datasets failed: {error})"
            raise _error(where, message) from None
        if not local and path in _builders():
            raise _error(f"{where}.path", f"the builder {quote(path)} is not allowed; use {listing(BUILDERS)}.")
        if int(datasets.__version__.split(".")[0]) < 4:
            # Before version 4 the library could run a script that lies beside the data.
            arguments["trust_remote_code"] = False
        bars = datasets.is_progress_bar_enabled()
        datasets.disable_progress_bars()
        try:
            loaded = datasets.load_dataset(path, spec.name, split=spec.split, revision=spec.revision, **arguments)
            split = _one_split(loaded, where)
            return Rows.from_list(_records(split, spec.max_rows), where=f"{where}: row")
        except SuiteError:
            raise
        except Exception as error:  # noqa: BLE001 - any of the library's many; it is told, not swallowed
            raise _error(where, _failure(spec.path or "", error)) from None
        finally:
            if bars:
                datasets.enable_progress_bars()


def _builders() -> set[str]:
    from datasets import packaged_modules

    # The library's own table is private; what is known to run or reach further is refused in any case.
    table = getattr(packaged_modules, "_PACKAGED_DATASETS_MODULES", {})
    return {*table, "cache", "generator", "pandas", "spark", "sql", "webdataset"}


def _error(where: str, message: str) -> SuiteError:
    return SuiteError([Problem(where, message)])


def _failure(path: str, error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"datasets could not load {quote(path)}: {type(error).__name__}: {text[:400]}"


def _inside(path: Path, rootdir: Path) -> bool:
    return path.resolve().is_relative_to(rootdir.resolve())


def _folder(name: str, rootdir: Path, base: Path, where: str) -> Path | None:
    """Return a folder of the project, or None where there is none of that name.

    Raises:
        SuiteError: It, or a file in it, is outside the project.
    """
    folder = base / name
    if not folder.is_dir():
        return None
    outside = f"{quote(name)} leads outside the project; keep the data inside it."
    if not _inside(folder, rootdir):
        raise _error(where, outside)
    for file in folder.rglob("*"):
        if not _inside(file, rootdir):
            raise _error(where, outside)
        if file.suffix == ".py":
            raise _error(where, f"{quote(name)} holds Python code ({file.name}); a dataset's own code is never run.")
    return folder.resolve()


def _path(path: str, rootdir: Path, base: Path, where: str) -> tuple[str, bool]:
    """Return what `load_dataset` is given, and whether its files are the project's own."""
    if path in BUILDERS:
        return path, True
    if "://" in path:
        raise _error(f"{where}.path", f"{quote(path)} is an address; name a dataset, a folder, or {listing(BUILDERS)}.")
    folder = _folder(path, rootdir, base, f"{where}.path")
    if folder is not None:
        return str(folder), True
    if not _HUB_NAME.fullmatch(path):
        raise _error(
            f"{where}.path",
            f"{quote(path)} is neither a folder beside the suite nor the name of a dataset (owner/name), "
            f"nor {listing(BUILDERS)}.",
        )
    if Path(path).exists():
        # The library prefers what lies in the current directory, which is not what the suite's paths are relative to.
        raise _error(
            f"{where}.path",
            f"{quote(path)} also exists in the current directory, and datasets would read that; "
            "write the folder's path relative to the suite.",
        )
    return path, False


def _data_files(
    files: Any, resolve: Callable[[str], Path], rootdir: Path, base: Path, where: str, *, local: bool
) -> Any:
    if isinstance(files, Mapping):
        return {
            str(split): _data_files(inner, resolve, rootdir, base, where, local=local) for split, inner in files.items()
        }
    if isinstance(files, (list, tuple)):
        made = [_data_files(inner, resolve, rootdir, base, where, local=local) for inner in files]
        return [path for part in made for path in (part if isinstance(part, list) else [part])]
    name, place = str(files), f"{where}.data_files"
    if "://" in name or "::" in name:
        raise _error(place, f"{quote(name)} is an address; data files are paths inside the project.")
    parts = Path(name).parts
    if not local:
        # Files of the dataset's own repository: the library reads them relative to it.
        if Path(name).is_absolute() or ".." in parts:
            raise _error(place, f"{quote(name)} leaves the dataset; write a path inside it.")
        return name
    if any(c in name for c in "*?["):
        if Path(name).is_absolute() or ".." in parts:
            raise _error(place, f"{quote(name)}: a pattern may not leave the folder of the suite.")
        found = sorted(path for path in base.glob(name) if path.is_file())
        if not found:
            raise _error(place, f"no file fits {quote(name)}.")
        if not all(_inside(path, rootdir) for path in found):
            raise _error(place, f"{quote(name)} leads outside the project; keep the data inside it.")
        return [str(path.resolve()) for path in found]
    return str(resolve(name))


def _data_dir(value: Any, rootdir: Path, base: Path, where: str, *, local: bool) -> str:
    name, place = str(value), f"{where}.dataset_kwargs.data_dir"
    if not local:
        if "://" in name or Path(name).is_absolute() or ".." in Path(name).parts:
            raise _error(place, f"{quote(name)} leaves the dataset; write a path inside it.")
        return name
    folder = _folder(name, rootdir, base, place)
    if folder is None:
        raise _error(place, f"there is no folder {quote(name)} beside the suite.")
    return str(folder)


def _one_split(loaded: Any, where: str) -> Any:
    if not isinstance(loaded, Mapping):
        return loaded
    if len(loaded) == 1:
        return next(iter(loaded.values()))
    message = f'the dataset has several splits; set "split". {did_you_mean("", loaded, what="Splits")}'
    if not loaded:
        message = "the dataset has no split."
    raise _error(f"{where}.split", message.rstrip())


def _records(split: Iterable[Mapping[str, Any]], max_rows: int | None) -> Iterable[dict[str, Any]]:
    for row in itertools.islice(split, max_rows):
        yield {key: _as_json(value) for key, value in row.items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, list):
        return [_as_json(inner) for inner in value]
    if isinstance(value, dict):
        return {key: _as_json(inner) for key, inner in value.items()}
    return value
