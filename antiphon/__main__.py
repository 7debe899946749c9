"""``python -m antiphon``."""

from antiphon.cli import main

if __name__ == "__main__":
    main()
