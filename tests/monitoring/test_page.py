"""The status page in Debian's Chromium, during a real job that is hurt meanwhile."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from live_job import LiveJob, needs
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from running_job import one

# One process has the job for all tests.
pytestmark = [pytest.mark.monitoring, pytest.mark.xdist_group("monitoring")]

_MILLISECONDS = 60_000
LOOKS = {
    "wide-light": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    "wide-dark": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
    "phone-light": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "phone-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = needs("chromium", "chromium")
    with sync_playwright() as playwright:
        # Its sandbox refuses to run as root, and the page is our own.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """One look at the page, with everything that it asked for and complained about."""

    def __init__(self, browser: Browser, job: LiveJob, look: str) -> None:
        token = job.token_file.read_text().strip()
        phone = look.startswith("phone")
        self._context = browser.new_context(
            **LOOKS[look],
            http_credentials={"username": "any", "password": token},
            has_touch=phone,
            is_mobile=phone,
            device_scale_factor=2 if phone else 1,
        )
        self.page = self._context.new_page()
        self.page.set_default_timeout(_MILLISECONDS)
        self.asked: set[str] = set()
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.add(request.url.split("/")[2]))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console",
            lambda message: (
                self.complaints.append(message.text)
                if message.type == "error" and "Failed to load resource" not in message.text
                else None
            ),
        )
        self.page.goto(f"http://{job.address}/")
        expect(self.page.locator("#pulse")).to_have_text("live", timeout=_MILLISECONDS)
        expect(self.page.locator("#loss .line")).to_be_visible(timeout=_MILLISECONDS)

    def end(self, job: LiveJob) -> None:
        self._context.close()
        assert self.asked == {job.address}, "the page asked somebody else"
        assert self.complaints == []


def _tile(page: Page, name: str) -> Locator:
    pair = page.locator("#tiles > div", has=page.locator("dt", has_text=re.compile(f"^{name}$")))
    return pair.locator("dd")


def _of_kind(page: Page, kind: str) -> Locator:
    """Rows of the table of events."""
    exactly = page.locator(".pill", has_text=re.compile(f"^{kind}$"))
    return page.locator("#events tbody tr", has=exactly)


@pytest.mark.parametrize("look", LOOKS)
def test_the_page_is_complete_and_accessible_everywhere(
    browser: Browser, live_job: LiveJob, artifacts: Path, look: str
) -> None:
    visit = Visit(browser, live_job, look)
    page = visit.page
    expect(page.locator("h1")).to_have_text("seen")
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("#workers tbody tr")).to_have_count(2)
    expect(page.locator("#servers tbody tr")).to_have_count(2)
    expect(page.locator("#workers-count")).to_have_text("2 of 2")
    assert re.match(r"0\.\d{4}", _tile(page, "AUC").inner_text())
    assert "rows, pause" in _tile(page, "last checkpoint").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.screenshot(path=artifacts / f"page-{look}.png", full_page=True)
    found = Axe().run(page)
    assert not found.response["violations"], found.generate_report()
    visit.end(live_job)


def test_numbers_change_and_a_killed_worker_shows(
    browser: Browser, live_job: LiveJob, artifacts: Path
) -> None:
    visit = Visit(browser, live_job, "wide-light")
    page = visit.page
    bar = page.locator("#progress")
    before = bar.get_attribute("aria-valuetext")
    expect(bar).not_to_have_attribute("aria-valuetext", str(before), timeout=_MILLISECONDS)
    lost = live_job.status().workers_lost
    one("fleetps.training.worker", env="FLEETPS_RANK=0").kill()
    expect(_tile(page, "workers lost")).to_contain_text(str(lost + 1), timeout=_MILLISECONDS)
    event = _of_kind(page, "worker-lost").first
    expect(event).to_contain_text("killed by SIGKILL", timeout=_MILLISECONDS)
    expect(event).to_contain_text("worker 0")
    page.screenshot(path=artifacts / "page-worker-lost.png", full_page=True)
    page.get_by_label("only trouble").check()
    expect(_of_kind(page, "running").first).to_be_hidden()
    expect(event).to_be_visible()
    visit.end(live_job)


def test_the_page_outlives_the_coordinator(
    browser: Browser, live_job: LiveJob, artifacts: Path
) -> None:
    """One that stands still for a while, and one that is killed and started again."""
    visit = Visit(browser, live_job, "phone-dark")
    page = visit.page
    events = page.locator("#events tbody tr")
    known = events.count()
    coordinator = one("fleetps.coordinator")
    coordinator.send_signal(signal.SIGSTOP)
    notice = page.locator(".notice")
    expect(notice).to_contain_text("has not answered for", timeout=_MILLISECONDS)
    expect(page.locator("#pulse")).to_contain_text("last heard")
    page.screenshot(path=artifacts / "page-coordinator-silent.png")
    coordinator.send_signal(signal.SIGCONT)
    expect(page.locator("#pulse")).to_have_text("live", timeout=_MILLISECONDS)
    expect(notice).to_have_count(0)
    points = page.locator("#loss .line").get_attribute("points")
    coordinator.kill()
    expect(_of_kind(page, "restarted").first).to_be_visible(timeout=_MILLISECONDS)
    before = str(page.locator("#progress").get_attribute("aria-valuetext"))
    expect(page.locator("#progress")).not_to_have_attribute(
        "aria-valuetext", before, timeout=_MILLISECONDS
    )
    assert events.count() > known
    assert len(str(page.locator("#loss .line").get_attribute("points"))) > len(str(points)) / 2
    visit.end(live_job)
