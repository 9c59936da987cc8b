"""What operators do: see how a store stands, move readers, retry or drop what is parked."""
