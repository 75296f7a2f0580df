"""Speed beside the peers, on the same records, in one run. `make bench` runs it.

| file | what |
|---|---|
| `workloads` | the records |
| `stores` | ourselves and the peers, behind one small interface |
| `conversion` | one large file to another format: speed and memory |
| `timing` | interleaved rounds, best of n |
| `order` | what shuffling costs, and when blocks pay |
| `__main__` | the tables |
"""
