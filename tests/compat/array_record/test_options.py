"""Option strings: each row of the grammar, and random ones beside the original's parser, message for message."""

from __future__ import annotations

from pathlib import Path

import pytest
from anyrecord.compat.array_record._options import reader_options, writer_options
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .sides import Case, Side, assert_same

WRITER = [
    "", ",,group_size:2,,", "default", "default:", "default:1", ",default", "default,group_size:2",
    "group_size:2,default", "default,default", "group_size", "group_size:", "group_size:0", "group_size: 3 ",
    "group_size:+3", "group_size:\t3", "group_size:0x3", "group_size:3.0", "group_size:-1", "group_size:1_0",
    "group_size:99999999999999999999", "group_size:2147483648", "group_size:1:2", "group_size:1,group_size:1",
    "group_size:x,group_size:1", "group_size:٣", " group_size:1", "Group_size:1", "foo", "foo:1,group_size:0", ":1",
    "transpose", "transpose:true", "transpose:false", "transpose:True", "transpose:empty", "transpose,transpose",
    "transpose_bucket_size", "transpose_bucket_size:0", "transpose_bucket_size:1e3", "transpose_bucket_size:x",
    "transpose_bucket_size:auto ", "transpose:false,transpose_bucket_size:7",
    "uncompressed", "uncompressed:", "uncompressed:1", "uncompressed,uncompressed", "uncompressed,snappy",
    "brotli", "brotli:", "brotli:0", "brotli:12", "brotli:x", "brotli:x,zstd", "brotli,zstd:99", "zstd,brotli",
    "zstd:0", "zstd:22", "zstd:-131072", "zstd:-131073", "snappy", "snappy:1", "snappy:2", "snappy:0", "snappy:3",
    "window_log", "window_log:10", "window_log:auto", "window_log:9", "window_log:31", "window_log:32",
    "brotli,window_log:31", "window_log:31,brotli", "window_log:20,brotli", "brotli:x,window_log:9",
    "window_log:9,brotli:x", "window_log:20,snappy", "snappy,window_log:20", "snappy,window_log:auto",
    "uncompressed,window_log:20", "window_log:20,uncompressed", "window_log:x,uncompressed",
    "brotli:3,window_log:12,zstd", "zstd,window_log:9,foo", "zstd:99,foo", "zstd:99,group_size:0",
    "uncompressed,window_log,brotli", "window_log,brotli,uncompressed", "uncompressed:1,window_log:x",
    "window_log:x,uncompressed:1", "brotli,uncompressed,zstd", "window_log:99,snappy:9,brotli", "uncompressed,default",
    "pad_to_block_boundary:true", "pad_to_block_boundary:false", "pad_to_block_boundary:1",
    "max_parallelism", "max_parallelism:0", "max_parallelism:auto", "max_parallelism:7",
    "saturation_delay_ms", "saturation_delay_ms:0", "saturation_delay_ms:5",
    "transpose,uncompressed,transpose_bucket_size:5", "transpose,snappy,transpose_bucket_size:5",
    "brotli:9,group_size:3,transpose:true",
]  # fmt: skip
BYTES = [
    "1.5k", "auto", "0.4", "0.5", "1.5", "2.5", "1E3", "1E", "1e400", "inf", "-inf", "nan", "-1", "-0", " 5 ", "5 k",
    "+5", "0x10", "0x1p4", "0x", "k", ".5k", "5.", ".", "99E", "16E", "5b", "5e", "5B", "1e3k", "BB", "5BB", "", "1_0",
]  # fmt: skip
READER = [
    "", "max_parallelism", "max_parallelism:0", "max_parallelism:-1", "max_parallelism:auto", "max_parallelism:8",
    "readahead_buffer_size", "readahead_buffer_size:0", "readahead_buffer_size:16M", "readahead_buffer_size:2G",
    "readahead_buffer_size:auto", "index_storage_option", "index_storage_option:", "index_storage_option:in_memory",
    "index_storage_option:offloaded,footer_prefetch_bytes:0", "index_storage_option:x", "footer_prefetch_bytes:auto",
    "index_storage_option:offloaded,footer_prefetch_bytes:1", "footer_prefetch_bytes:2G", "foo", "default",
    "max_parallelism:1,max_parallelism:1", "max_parallelism:1,,readahead_buffer_size:1k,",
]  # fmt: skip


def written(options: str) -> Case:
    """What the writer records of its options."""

    def case(side: Side) -> str | None:
        path = side.write([], options)
        found: str | None = side.module.ArrayRecordReader(path).writer_options_string()
        return found

    return case


@pytest.mark.framework
@pytest.mark.parametrize("options", WRITER)
def test_writer_takes_and_refuses_what_the_original_does(tmp_path: Path, options: str) -> None:
    assert_same(written(options), tmp_path, texts=True)


@pytest.mark.framework
@pytest.mark.parametrize("value", BYTES)
def test_numbers_of_bytes_are_read_as_the_original_reads_them(tmp_path: Path, value: str) -> None:
    assert_same(written(f"transpose,transpose_bucket_size:{value}"), tmp_path, texts=True)


@pytest.mark.framework
@pytest.mark.parametrize("options", READER)
def test_reader_takes_and_refuses_what_the_original_does(tmp_path: Path, options: str) -> None:
    assert_same(lambda side: side.reader(options=options).read_all(), tmp_path, texts=True)


values = st.one_of(
    st.sampled_from(["", "true", "false", "auto", "0", "1", "3", "9", "10", "11", "22", "30", "31", "x", "+2", " 4 "]),
    st.text("0123456789.eE+-kKMGB xinf", max_size=6).filter(lambda text: not text.endswith(("kB", "KB", "MB", "GB"))),
)
keys = st.sampled_from([
    "default", "group_size", "max_parallelism", "saturation_delay_ms", "transpose", "transpose_bucket_size",
    "uncompressed", "brotli", "zstd", "snappy", "window_log", "pad_to_block_boundary", "other", "",
])  # fmt: skip


def is_a_known_difference(item: str) -> bool:
    return item in ("pad_to_block_boundary", "pad_to_block_boundary:")


items = st.builds(lambda key, value: f"{key}:{value}" if value else key, keys, values)
strings = st.lists(items.filter(lambda item: not is_a_known_difference(item)), max_size=4).map(",".join)


@pytest.mark.framework
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(options=strings)
def test_random_option_strings_have_the_outcome_of_the_original(
    tmp_path_factory: pytest.TempPathFactory, options: str
) -> None:
    assert_same(written(options), tmp_path_factory.getbasetemp(), texts=True)


def test_sizes_may_be_written_as_in_the_documentation() -> None:
    for size in ("16MB", "4MB", "64MB", "64KB", "1GB", "auto", "0"):
        reader_options(f"readahead_buffer_size:{size}")
    assert writer_options("transpose,transpose_bucket_size:4KB")["transpose_bucket_size"] == 4096


@pytest.mark.parametrize("key", ["index_storage_option", "index_storage_options"])
def test_offloaded_needs_nothing_else_as_the_documentation_has_it(key: str) -> None:
    assert reader_options(f"{key}:offloaded").table == "disk"


def test_padding_without_a_value_is_on_as_the_documentation_has_it() -> None:
    assert writer_options("pad_to_block_boundary")["pad_to_block_boundary"] is True


def test_parallelism_of_a_writer_is_bounded_by_the_cores() -> None:
    assert writer_options("max_parallelism:1")["threads"] == 1
    assert writer_options("max_parallelism:2147483647").get("threads", 1) <= 1024


@pytest.mark.parametrize("options", ["group_size:0", "foo", "default,default", "zstd,brotli", "window_log:99"])
def test_option_errors_come_before_the_file_is_touched(tmp_path: Path, options: str) -> None:
    from anyrecord.compat.array_record.python.array_record_module import ArrayRecordWriter

    with pytest.raises(ValueError):
        ArrayRecordWriter(str(tmp_path / "f"), options)
    assert list(tmp_path.iterdir()) == []
