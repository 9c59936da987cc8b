"""Parts that all loops share: stopping, waiting, retries, and logs of outages."""
