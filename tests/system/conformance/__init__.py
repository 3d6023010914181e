# SPDX-License-Identifier: MIT
"""torch's own tests of its distributed package, run on the backend netsum."""
