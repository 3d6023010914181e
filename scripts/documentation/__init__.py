# SPDX-License-Identifier: MIT
"""The site that `make docs` builds: generated pages, and links of those in docs/. `scripts/mkdocs_hooks.py` joins them."""
