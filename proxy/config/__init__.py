"""What models of YAML files are made of: scalars, units, and which keys go together."""
