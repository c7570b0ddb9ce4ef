"""Types for models of YAML files: values, units, references, and conditions on several keys."""
