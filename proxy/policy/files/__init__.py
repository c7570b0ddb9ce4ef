"""Policy files: found, read as YAML with places, put together, validated in shape."""
