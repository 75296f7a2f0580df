"""Names, order and defaults of parameters: those of the originals, which code passes by position and by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anyrecord.compat import ffrecord, recordio
from anyrecord.compat.array_record.python import array_record_data_source, array_record_module


def parameters(function: Callable[..., Any]) -> str:
    """The signature without types and `self`."""
    signature = inspect.signature(function)
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in signature.parameters.items()
        if name != "self"
    ]
    return str(inspect.Signature(plain))


SIGNATURES: list[tuple[Callable[..., Any], str]] = [
    (ffrecord.FileWriter, "(fname, n)"),
    (ffrecord.FileWriter.write_one, "(data)"),
    (ffrecord.FileReader, "(fname, check_data=True)"),
    (ffrecord.FileReader.read, "(indices)"),
    (ffrecord.FileReader.read_one, "(index)"),
    (ffrecord.FileReader.get_offsets, "(file_index)"),
    (ffrecord.FileReader.get_checksums, "(file_index)"),
    (ffrecord.PackedFolder, "(ffr_file, check_data=True)"),
    (ffrecord.PackedFolder.read_one, "(fname)"),
    (ffrecord.PackedFolder.read, "(fnames)"),
    (ffrecord.PackedFolder.list, "(path=None, list_file=True, list_dir=True, recursive=False)"),
    (ffrecord.PackedFolder.exists, "(path)"),
    (ffrecord.PackedFolder.is_file, "(path)"),
    (ffrecord.PackedFolder.is_dir, "(path)"),
    (ffrecord.pack_folder, "(folder, out_file, verbose=False)"),
    (ffrecord.checkFsAlign, "(fd)"),
    (ffrecord.utils.dump, "(dataset, fname, nfiles, verbose=False)"),
    (recordio.Writer, "(path)"),
    (recordio.Writer.write, "(record)"),
    (recordio.Index, "(path)"),
    (recordio.Scanner, "(path, start=0, len=-1, index=None)"),
    (array_record_module.ArrayRecordWriter, "(path, options='', **_kwargs)"),
    (array_record_module.ArrayRecordReader, "(path, options='', **kwargs)"),
    # One more than 0.8.6 has: other releases have it, and command lines that set it.
    (array_record_data_source.ArrayRecordDataSource, "(paths, reader_options=None, reader_pool_size=None)"),
]

LOADER = (
    "(dataset, batch_size=1, shuffle=False, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None, "
    "pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None, generator=None, *, prefetch_factor=2, "
    "persistent_workers=False, skippable=True, **options)"
)


@pytest.mark.parametrize(("function", "expected"), SIGNATURES, ids=[each[0].__qualname__ for each in SIGNATURES])
def test_parameters_are_those_of_the_original(function: Callable[..., Any], expected: str) -> None:
    assert parameters(function) == expected


@pytest.mark.framework
def test_parameters_of_ffrecord_torch_are_those_of_the_original() -> None:
    torch = ffrecord.torch
    assert parameters(torch.DataLoader) == LOADER
    assert parameters(torch.DataLoader.set_step) == "(step)"
    assert parameters(torch.Dataset) == "(fnames, check_data=True)"
    assert parameters(torch.Dataset.process) == "(indices, data)"
    assert parameters(torch.Subset) == "(dataset, indices)"
    assert parameters(torch.ConcatDataset) == "(datasets)"
    assert parameters(torch.ConcatDataset.cumsum) == "(sequence)"


@pytest.mark.framework
def test_positional_arguments_of_the_loader_arrive_where_ffrecord_has_them(tmp_path: Path) -> None:
    from torch import Generator

    from compat.ffrecord.framework.ffrecord_datasets import Numbers, write_numbers

    dataset = Numbers(write_numbers(tmp_path / "a.ffr", 22))
    order = [21, 3, 3, 0]
    generator = Generator().manual_seed(7)
    loader = ffrecord.torch.DataLoader(
        dataset, 3, False, order, None, 2, list, False, True, 60, worker_began, generator, prefetch_factor=4
    )
    assert (loader.batch_size, loader.num_workers, loader.drop_last, loader.timeout) == (3, 2, True, 60)
    assert (loader.collate_fn, loader.worker_init_fn, loader.pin_memory) == (list, worker_began, False)
    assert (loader.generator, loader.prefetch_factor, loader.multiprocessing_context) == (generator, 4, None)
    assert list(loader) == [[21, 3, 3]]

    shuffled = ffrecord.torch.DataLoader(dataset, 5, True, None, None, 0, None, False, False, 0, None, generator)
    assert sorted(int(sample) for batch in shuffled for sample in batch) == list(range(22))
    batches = ffrecord.torch.DataLoader(dataset, 1, False, None, [[1, 2], [3]])
    assert [batch.tolist() for batch in batches] == [[1, 2], [3]]
    with pytest.raises(TypeError):
        ffrecord.torch.DataLoader(*[dataset, 5, True, None, None, 0, None, False, False, 0, None, generator, None])
    with pytest.raises(TypeError) as unknown:
        ffrecord.torch.DataLoader(dataset, bath_size=5)
    assert "bath_size" in str(unknown.value)


@pytest.mark.framework
def test_what_only_pytorch_has_is_given_by_keyword(tmp_path: Path) -> None:
    from compat.ffrecord.framework.ffrecord_datasets import Numbers, write_numbers

    dataset = Numbers(write_numbers(tmp_path / "a.ffr", 22))
    loader = ffrecord.torch.DataLoader(dataset, 5, num_workers=1, multiprocessing_context="spawn", in_order=False)
    assert loader.multiprocessing_context is not None
    assert loader.multiprocessing_context.get_start_method() == "spawn"
    assert loader.in_order is False


def worker_began(number: int) -> None:
    """What a worker calls first."""
