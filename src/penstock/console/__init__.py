"""The console: a web page that shows a store, and acts on it."""
