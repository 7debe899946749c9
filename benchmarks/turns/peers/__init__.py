"""Other servers in the same run, on the same backends of fixed delays, heard by the same client."""
