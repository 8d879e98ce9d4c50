"""report.html and compare.html in a real browser: the threshold moves, and no text is cut off at any common width."""

from __future__ import annotations

import pytest
from trial_scores import rows_of

pytest.importorskip("selenium.webdriver")
from browser import NEEDS_BROWSER, WIDTHS, browser
from score_rows import scores_from
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from pipeline.config import Config
from pipeline.evaluation.assess import FailedFile
from pipeline.evaluation.comparison_report import compare, read_evaluations, write_comparison
from pipeline.evaluation.measure import measure
from pipeline.evaluation.metrics_table import metrics_table
from pipeline.evaluation.report import write_evaluation

pytestmark = [pytest.mark.slow, pytest.mark.browser, NEEDS_BROWSER]
SYSTEMS = ("boar", "poar", "boao", "poao", "rpoao", "worst_rival", "fused")
SPEAKERS = [f"a rather long speaker's name {n}" for n in range(8)]


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory):
    """Two evaluations of seven systems."""
    folders = []
    for seed, name in enumerate(("first", "second")):
        scores = {
            system: scores_from(
                rows_of(system, seed=10 * seed + k, gap=1.0 + k / 3, llr=lambda score: score, speakers=SPEAKERS)
            )
            for k, system in enumerate(SYSTEMS)
        }
        metrics = {system: measure(of, threshold=0.61, seed=3) for system, of in scores.items()}
        about = {"trials": f"/a/folder/deep/down/{'trials_' * 12}.txt", "settings": {"seed": seed, **SETTINGS}}
        table = metrics_table(metrics, default_system="fused", about=about)
        folders.append(tmp_path_factory.mktemp("evaluations") / name)
        failed = [FailedFile("b/mute.wav", "b/mute.wav: 0.00 s of speech found", 3)]
        write_evaluation(folders[-1], scores, table, failed=failed, command="voiceclaim evaluate " + "x" * 200)
    return folders


SETTINGS = {key: value for key, value in Config().model_dump(mode="json").items() if key != "seed"}


def test_the_threshold_moves_and_other_systems_are_behind_a_switch(evaluations):
    with browser(f"file://{evaluations[0]}/report.html") as page:
        page.driver.get(page.url)
        page.wait(lambda: page.text("rates").startswith("At a threshold of 0.6100:"))
        assert len(page.all("#det .curve")) == 5
        assert len(page.all("#det .eer")) == 5
        page.at("every").click()
        assert len(page.all("#det .curve")) == len(SYSTEMS)
        before = page.text("rates")
        page.at("threshold").send_keys(*[Keys.ARROW_RIGHT] * 10)
        assert page.text("rates") != before
        page.at("to-eer").click()
        assert "equal error rate" in page.text("rates")
        Select(page.at("system")).select_by_value("boao")
        assert page.all("#det .curve.chosen")
        assert "Choose a threshold" in page.driver.find_element(By.TAG_NAME, "main").text
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        assert "Choose a threshold" not in page.driver.find_element(By.TAG_NAME, "main").text
        assert page.complaints() == []


@pytest.mark.parametrize("dark", [False, True])
def test_no_text_of_a_report_is_cut_off(evaluations, tmp_path, dark):
    read = read_evaluations(evaluations)
    write_comparison(tmp_path, read, compare(read))
    pages = (evaluations[0] / "report.html", tmp_path / "compare.html")
    with browser("", dark=dark) as page:
        for path in pages:
            for width in WIDTHS:
                page.resize(width)
                page.driver.get(f"file://{path}")
                page.driver.execute_script(
                    "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
                )
                assert page.clipped() == page.faint() == [], f"{path.name} at {width}"


def test_text_that_is_cut_off_is_found(tmp_path):
    (tmp_path / "cut.html").write_text(
        "<!DOCTYPE html><body><p style='width: 2000px'>" + "much too wide " * 40 + "</p>"
        "<div style='overflow: hidden; width: 60px'><span style='white-space: nowrap'>hidden by its box</span></div>"
        "<div style='overflow: auto; width: 60px'><span style='white-space: nowrap'>scrolls into view</span></div>"
        "<p>fits</p><p style='color: #888'>faint</p><p style='color: #666'>clear</p>"
        "<table style='width: 1px; overflow-wrap: anywhere'><td>letters</td></table></body>"
    )
    with browser("") as page:
        page.driver.get(f"file://{tmp_path}/cut.html")
        found = " ".join(page.clipped())
        assert page.faint() == ["faint (3.54)"]
    assert "much too wide" in found and "hidden by its box" in found
    assert "torn: letters" in found
    assert "scrolls into view" not in found and "fits" not in found
