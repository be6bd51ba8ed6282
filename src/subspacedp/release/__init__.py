"""Releases: public designs, published values, certificates, checks and files."""

from subspacedp.release.certificate import certificate_schema
from subspacedp.release.design import MAX_DECIMALS, Design, ExpectedError, calibrated_law
from subspacedp.release.files import check_new_folder, verify_folder
from subspacedp.release.release import Release
from subspacedp.release.verify import Check, Verification

__all__ = [
    "MAX_DECIMALS",
    "Check",
    "Design",
    "ExpectedError",
    "Release",
    "Verification",
    "calibrated_law",
    "certificate_schema",
    "check_new_folder",
    "verify_folder",
]
