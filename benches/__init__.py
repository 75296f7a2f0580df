"""Speed beside the peers, on the same records, in one run. `make bench` runs all of it; `python -m benches NAME` one.

| file | what |
|---|---|
| `__main__` | the command line; each benchmark prints its tables and saves its figures |
| `stores` | every store at every size, ratios and goals |
| `curve`, `instructions` | files of a thousand to ten million records: by the clock, and by counting instructions |
| `baseline` | the committed counts of instructions, which `make instructions` holds the code to |
| `codecs`, `opening`, `larger`, `cold`, `cores`, `in_place`, `order`, `conversion` | one question each |
| `store`, `ours`, `peers` | a way to keep records; ourselves; the others |
| `elsewhere` | figures of libraries that cannot be installed here |
| `ratios`, `goals` | how many times faster, and how many times we mean to be |
| `workloads`, `numbered` | the records; files of very many small ones |
| `timing`, `cache`, `device`, `children` | interleaved rounds; cold files; the disk alone; processes of their own |
| `machine`, `results`, `tables` | where figures come from; how they are saved and shown |
| `plot`, `report` | pictures and tables for the documentation, from saved results |
"""
