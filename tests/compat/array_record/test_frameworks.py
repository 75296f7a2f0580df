"""Grain and PyTorch on the installed modules: programs that import `array_record`, and none of them knows of us."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..scripts import run_text

pytestmark = pytest.mark.framework

WRITE = """
def write(shards, each):
    from array_record.python.array_record_module import ArrayRecordWriter
    paths = []
    for shard in range(shards):
        path = f"data-{shard:05d}-of-{shards:05d}.array_record"
        writer = ArrayRecordWriter(path, "group_size:1")
        for i in range(each):
            writer.write(b"%d" % (shard * each + i))
        writer.close()
        paths.append(path)
    return paths
"""

GRAIN = (
    WRITE
    + """

def main():
    import grain
    from absl import flags
    flags.FLAGS.mark_as_parsed()  # where JAX is installed, Grain asks for a flag before it starts workers
    from array_record.python import array_record_data_source
    assert array_record_data_source.__name__.startswith("anyrecord.compat.")
    # Grain's own source is made from what it imported.
    assert issubclass(grain.sources.ArrayRecordDataSource, array_record_data_source.ArrayRecordDataSource)

    ds = grain.sources.ArrayRecordDataSource(write(5, 64), {"max_parallelism": "1"})
    assert ds[150] == b"150" and len(ds.paths) == 5

    batches = grain.MapDataset.source(ds).shuffle(seed=42).map(int).batch(32)
    found = [int(x) for i in range(len(batches)) for x in batches[i]]
    assert sorted(found) == list(range(320)) and found != list(range(320))

    iterator = iter(batches.to_iter_dataset())
    first, second = next(iterator), next(iterator)
    state = iterator.get_state()
    third = next(iterator).tolist()
    iterator.set_state(state)
    assert next(iterator).tolist() == third

    sampler = grain.samplers.IndexSampler(num_records=len(ds), shuffle=True, seed=1, num_epochs=1)
    for workers in (0, 2):
        loader = grain.DataLoader(data_source=ds, sampler=sampler, worker_count=workers, operations=[])
        assert sorted(int(record) for record in loader) == list(range(320)), workers

    loader = grain.DataLoader(data_source=ds, sampler=sampler, worker_count=0)
    iterator = iter(loader)
    [next(iterator) for _ in range(7)]
    state = iterator.get_state()
    assert b"hash_of_paths=" in state
    expected = next(iterator)
    again = iter(grain.DataLoader(data_source=ds, sampler=sampler, worker_count=0))
    again.set_state(state)
    assert next(again) == expected
    print("grain is happy")
"""
)

TORCH = (
    WRITE
    + """
class Numbers:
    def __init__(self, paths):
        from array_record.python import array_record_data_source
        self.source = array_record_data_source.ArrayRecordDataSource(paths)
        assert type(self.source).__module__.startswith("anyrecord.compat.")

    def __len__(self):
        return len(self.source)

    def __getitem__(self, index):
        import torch
        import array_record.python.array_record_module as module      # in the worker
        assert module.__name__.startswith("anyrecord.compat.")
        x = float(self.source[index]) / 100
        return torch.tensor([x]), torch.tensor([3 * x + 1])

def main(methods=("fork", "spawn")):
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    paths = write(3, 100)
    for method in methods:
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(
            Numbers(paths), batch_size=32, shuffle=True, num_workers=2 if method == "fork" else 1,
            multiprocessing_context=method, persistent_workers=True,
        )
        losses = []
        for epoch in range(8):
            seen = []
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                seen += (x * 100).round().int().flatten().tolist()
            assert sorted(seen) == list(range(300)), method
        assert losses[-1] < losses[0] / 20, losses
        del loader
        print("torch learned in workers by", method)
"""
)

INSTALL = """
import anyrecord.compat
anyrecord.compat.install("array_record")
"""


def test_grain_with_its_own_source_and_with_workers(tmp_path: Path) -> None:
    program = GRAIN + 'if __name__ == "__main__":\n' + indent(INSTALL + "main()")
    assert run_text(program, tmp_path) == "grain is happy\n"


def test_torch_trains_with_forked_and_with_spawned_workers(tmp_path: Path) -> None:
    program = TORCH + 'if __name__ == "__main__":\n' + indent(INSTALL + "main()")
    assert run_text(program, tmp_path).splitlines() == [f"torch learned in workers by {m}" for m in ("fork", "spawn")]


def test_programs_that_nobody_edits_run_by_the_environment_variable(tmp_path: Path) -> None:
    for text, arguments, last in (
        (GRAIN, "", "grain is happy"),
        (TORCH, '["spawn"]', "torch learned in workers by spawn"),
    ):
        program = text + f'if __name__ == "__main__":\n    main({arguments})\n'
        assert run_text(program, tmp_path, ANYRECORD_COMPAT="array_record").splitlines()[-1] == last


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_grain_then_torch_in_a_worker_of_that_kind(tmp_path: Path, method: str) -> None:
    (tmp_path / "with_grain.py").write_text(GRAIN)
    (tmp_path / "with_torch.py").write_text(TORCH)
    program = f"""
        import multiprocessing

        def work():
            import with_grain, with_torch
            with_grain.main()
            with_torch.main(["spawn"])

        if __name__ == "__main__":
            import anyrecord.compat
            anyrecord.compat.install("array_record")
            process = multiprocessing.get_context("{method}").Process(target=work)
            process.start()
            process.join()
            assert process.exitcode == 0
    """
    assert run_text(program, tmp_path).splitlines() == ["grain is happy", "torch learned in workers by spawn"]


def test_a_reader_that_the_parent_used_is_of_use_in_a_forked_child(tmp_path: Path) -> None:
    """The original hangs here: its threads are not in the child."""
    program = (
        WRITE
        + """
if __name__ == "__main__":
    import multiprocessing
    import anyrecord.compat
    anyrecord.compat.install("array_record")
    from array_record.python.array_record_module import ArrayRecordReader
    reader = ArrayRecordReader(write(1, 1000)[0])
    reader.read_all()
    reader.read()

    def work(queue):
        queue.put([reader.read(), reader.read([7]), ArrayRecordReader("data-00000-of-00001.array_record").read()])

    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get(timeout=60))
    process.join()
"""
    )
    assert run_text(program, tmp_path) == "[b'1', [b'7'], b'0']\n"


def test_flags_of_the_original_are_accepted_on_the_command_line(tmp_path: Path) -> None:
    program = INSTALL + (
        "from absl import app, flags\n"
        "import array_record.python.array_record_data_source\n"
        "app.run(lambda argv: print(flags.FLAGS.grain_num_threads_fetching_records))\n"
    )
    arguments = ["--grain_num_threads_fetching_records=8", "--array_record_reader_pool_size=3"]
    assert run_text(program, tmp_path, *arguments) == "8\n"


def indent(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.strip().splitlines())
