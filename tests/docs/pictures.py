"""Draws the pictures of the documents anew: python tests/docs/pictures.py [house] [explorer] [plots]

Without words it draws all: the layers of the package, the explorer in a browser (``chromium`` and ``chromedriver``),
and the plots of the page of questions, which need Java for Spark.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs.documents import ROOT

IMAGES = ROOT / "docs" / "images"


def house() -> None:
    """The layers of the package."""
    from house import PICTURE, picture

    PICTURE.write_text(picture())


def explorer() -> None:
    """The data loss of BookKeeper 4.13, where it shows: on a desk in the light, and in a narrow window in the dark."""
    from explorer.browser import Browser
    from explorer.serving import served

    import fencepost
    from fencepost.language.loading import load

    protocol = load("bookkeeper-4.13").configured("defect-1-small")
    trace = fencepost.check(protocol).must_violate("no_divergence_between_writer_and_meta_data")
    with tempfile.TemporaryDirectory() as folder, served(protocol) as page:
        session = page.explorer.session
        path = session.path(session.graft(trace))
        browser = Browser(Path(folder))
        try:
            for name, width, height, dark in (("explorer", 1280, 800, False), ("explorer-narrow", 390, 760, True)):
                browser.look(width, height, dark)
                browser.open(f"{page.address}#{path}")
                if dark:
                    browser.click(".tabs [data-tab=diagram]", settles=False)
                (IMAGES / f"{name}.png").write_bytes(browser.screenshot())
        finally:
            browser.close()


def plots() -> None:
    """The plots of the page of questions."""
    from docs.gallery import answers
    from docs.gallery import plots as drawn

    from fencepost.spark.cluster import Cluster

    cluster = Cluster("local[2]")
    try:
        assert cluster.session
        with tempfile.TemporaryDirectory() as folder:
            for _ in answers(Path(folder)):
                pass
            for name, plot in drawn(Path(folder)).items():
                (IMAGES / name).write_text(plot)
    finally:
        cluster.close()


PICTURES = {"house": house, "explorer": explorer, "plots": plots}

if __name__ == "__main__":
    for each in sys.argv[1:] or PICTURES:
        PICTURES[each]()
