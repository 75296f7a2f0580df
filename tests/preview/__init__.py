"""What a record is, and how records look in a notebook."""
