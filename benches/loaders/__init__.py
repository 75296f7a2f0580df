"""Libraries that read a data set from an object store: anyrecord, and others that download whole shards.

Each module writes the same samples in the format of its library, and reads them in shuffled order. The modules run in
processes of their own (`python -m benches.loaders`), some of them in another virtual environment: the other libraries
need other versions of NumPy than our tests. So nothing here imports a library before it is used.
"""
