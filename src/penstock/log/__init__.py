"""Operations on the log: write, read, page through, follow."""
