"""Releases: public designs, published values, certificates, checks and files."""

from typing import TYPE_CHECKING

from subspacedp.lazy import on_first_use

if TYPE_CHECKING:
    from subspacedp.mechanisms.base import ExpectedError
    from subspacedp.mechanisms.estimates import Accuracy, Estimate
    from subspacedp.release.certificate import certificate_schema
    from subspacedp.release.designs import Comparison, Design, compare, design
    from subspacedp.release.files import rebuild_invariants, write_files, write_margins
    from subspacedp.release.folder_checks import verify_folder
    from subspacedp.release.folders import check_new_folder, new_folder
    from subspacedp.release.imposing import impose_on
    from subspacedp.release.release import PublishedValues, Ratio, Release, where
    from subspacedp.release.signature import read_private_key, sign_folder, write_digests
    from subspacedp.release.targets import LeastBudget, Price, least_budget
    from subspacedp.release.verify import Check, Verification

__all__ = [
    "Accuracy",
    "Check",
    "Comparison",
    "Design",
    "Estimate",
    "ExpectedError",
    "LeastBudget",
    "Price",
    "PublishedValues",
    "Ratio",
    "Release",
    "Verification",
    "certificate_schema",
    "check_new_folder",
    "compare",
    "design",
    "impose_on",
    "least_budget",
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

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "mechanisms.base": ["ExpectedError"],
        "mechanisms.estimates": ["Accuracy", "Estimate"],
        "release.certificate": ["certificate_schema"],
        "release.designs": ["Comparison", "Design", "compare", "design"],
        "release.files": ["rebuild_invariants", "write_files", "write_margins"],
        "release.folder_checks": ["verify_folder"],
        "release.folders": ["check_new_folder", "new_folder"],
        "release.imposing": ["impose_on"],
        "release.release": ["PublishedValues", "Ratio", "Release", "where"],
        "release.signature": ["read_private_key", "sign_folder", "write_digests"],
        "release.targets": ["LeastBudget", "Price", "least_budget"],
        "release.verify": ["Check", "Verification"],
    },
)
