"""What is removed, a file for each part of Penstock: the edits, and the tests that claim it."""
