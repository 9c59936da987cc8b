"""The transactional outbox, its dispatcher, and joins."""
