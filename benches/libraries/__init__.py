"""Libraries that read a data set, from an object store or from the local disk: anyrecord, and others.

Each module writes the same samples in the format of its library, and reads them in shuffled order. The modules run in
processes of their own (`python -m benches.libraries`), some of them in another virtual environment: the other libraries
need other versions of NumPy than our tests. So nothing here imports a library before it is used.
"""
