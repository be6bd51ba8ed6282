"""Releases: public designs, published values, certificates, checks and files."""

from subspacedp.release.certificate import certificate_schema
from subspacedp.release.design import MAX_DECIMALS, Design, ExpectedError, calibrated_law
from subspacedp.release.estimates import Accuracy, Estimate, check_level
from subspacedp.release.files import write_files, write_margins
from subspacedp.release.folder_checks import verify_folder
from subspacedp.release.folders import check_new_folder, new_folder
from subspacedp.release.questions import checked_weights, where
from subspacedp.release.ratios import Ratio
from subspacedp.release.rebuild import rebuild_invariants
from subspacedp.release.release import Release
from subspacedp.release.signature import read_private_key, sign_folder, write_digests
from subspacedp.release.verify import Check, Verification

__all__ = [
    "MAX_DECIMALS",
    "Accuracy",
    "Check",
    "Design",
    "Estimate",
    "ExpectedError",
    "Ratio",
    "Release",
    "Verification",
    "calibrated_law",
    "certificate_schema",
    "check_level",
    "check_new_folder",
    "checked_weights",
    "new_folder",
    "read_private_key",
    "rebuild_invariants",
    "sign_folder",
    "verify_folder",
    "where",
    "write_digests",
    "write_files",
    "write_margins",
]
