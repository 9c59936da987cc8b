"""The transactional outbox: enqueue in your transaction, dispatch later, join what belongs."""
