"""One file per outside thing; ``providers.py`` builds what the settings name."""
