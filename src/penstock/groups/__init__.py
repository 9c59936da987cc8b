"""Partitioned consumer groups: claims on partitions, and the workers that handle them."""
