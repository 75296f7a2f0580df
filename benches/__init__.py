"""Benchmarks against other libraries, on the same records, in one run.

`make bench` runs most benchmarks, `make bench-all` all of them, `python -m benches NAME` runs one.

| file | what |
|---|---|
| `__main__` | the command line; each benchmark prints its tables and saves its figures |
| `stores` | every store at every size, ratios and goals |
| `fresh` | every store in a new process that reads each record once |
| `first_epoch` | the same from cold files, beside reading the files in order |
| `curve`, `instructions` | files of a thousand to ten million records: timed, and by counting instructions |
| `baseline` | the committed counts of instructions, which `make instructions` compares with |
| `codecs`, `opening`, `larger`, `cold`, `shards`, `cores`, `callers` | one question each |
| `in_place`, `order`, `conversion`, `durable` | one question each, too |
| `beam` | conversion by Apache Beam, beside the original's pipelines |
| `remote`, `far_store` | a shuffled epoch from an object store; its slow link |
| `loaders` | a shuffled epoch in PyTorch from local files |
| `libraries` | the libraries of both, each in a process of its own |
| `gpu`, `accelerators` | records to a GPU; how many simulated accelerators are kept busy |
| `shard_queue`, `simulated_workers` | what a queue of shards costs at its store |
| `upload` | writing to an object store, beside local files that are uploaded |
| `store`, `ours`, `dropins`, `peers` | the base class of a store; anyrecord; its drop-ins; the other libraries |
| `elsewhere` | figures of libraries that cannot be installed here |
| `ratios`, `goals` | how many times faster anyrecord is, and how many times faster it should be |
| `outcomes` | the goals of all benchmarks that are reached and missed |
| `workloads`, `numbered` | the records; files with very many small records |
| `timing`, `page_cache`, `device`, `children` | interleaved rounds; cold files; the raw disk; separate processes |
| `cache` | the second epoch from the local cache of remote files |
| `machine`, `results`, `tables` | the machine and its versions; saving results; printing tables |
| `plot`, `report`, `choices` | pictures and tables for the documentation, from saved results |
| `pages` | writes them into README.md and docs/ |
"""
