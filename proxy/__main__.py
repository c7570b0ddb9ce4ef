"""``python -m proxy`` is ``headrace``."""

from proxy.cli import main

if __name__ == "__main__":
    main()
