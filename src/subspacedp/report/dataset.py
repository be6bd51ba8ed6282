"""A publication as a schema.org Dataset in JSON-LD, for the catalogues that harvest such data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from subspacedp.release import Release
from subspacedp.release.facts import Facts
from subspacedp.release.signature import DIGESTS, SIGNATURE
from subspacedp.report.words import PublishedFile, figure_words

CONTEXT = {"@vocab": "https://schema.org/", "dct": "http://purl.org/dc/terms/"}
TYPES = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "npy": "application/octet-stream",
    "json": "application/json",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/vnd.sdmx.structurespecificdata+xml",
}


def dataset(
    title: str, about: str, releases: Mapping[str, Release], files: Sequence[PublishedFile]
) -> dict[str, Any]:
    """The publication as plain data; what is not known is left out."""
    facts = next(iter(releases.values())).facts if releases else Facts()
    described = {
        "creator": facts.creator and {"@type": "Organization", "name": facts.creator},
        "datePublished": facts.date,
        "license": facts.licence,
        "version": facts.version,
    }
    return {
        "@context": CONTEXT,
        "@type": "Dataset",
        "name": title,
        "description": about or f"{title}. Figures have noise that protects people.",
        **{name: value for name, value in described.items() if value},
        "identifier": [release.release_id for release in releases.values()],
        **({"dct:replaces": [one.release_id for one in facts.replaces]} if facts.replaces else {}),
        "measurementTechnique": [
            f"{release.guarantee.name}: {release.mechanism.budget}; exact: {release.mechanism.held}"
            for release in releases.values()
        ],
        "variableMeasured": [
            {"@type": "PropertyValue", "name": "value", "description": words}
            for words in dict.fromkeys(figure_words(r.mechanism) for r in releases.values())
        ],
        "distribution": [
            {
                "@type": "DataDownload",
                "contentUrl": link_to(file.name),
                "encodingFormat": TYPES[ending],
                "description": file.holds,
                **({} if file.size is None else {"contentSize": f"{file.size} B"}),
                **({"sha256": file.sha256} if file.sha256 else {}),
            }
            for file in files
            if (ending := file.name.rpartition(".")[2]) in TYPES
            and file.name.rpartition("/")[2] not in (DIGESTS, SIGNATURE)
        ],
    }


def link_to(name: str) -> str:
    """The address of a file of a folder, from a page in the same folder."""
    return f"./{quote(name)}" if ":" in name else quote(name)
