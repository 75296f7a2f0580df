"""The stores of a `ShardQueue`: one suite over all of them, and what is special about each."""
