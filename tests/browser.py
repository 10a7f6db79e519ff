"""A real browser, Debian's Chromium, for pages. Test modules ask for it by ``pytest_plugins``."""

import shutil
from collections.abc import Iterator

import pytest

WIDE, NARROW = (1100, 800), (360, 740)


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    """A driver without a window on any screen; its console is read by ``console_of``."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (the extra dev)")
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in found:
        pytest.skip("there is no browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(found[1]))
    yield driver
    driver.quit()


def set_size(driver, size: tuple[int, int]) -> None:
    """How large the page itself is, narrower than any window may be."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def console_of(driver) -> list[str]:
    """What was said on the console since it was last read; that a file has no icon is no error of its own."""
    return [each["message"] for each in driver.get_log("browser") if "favicon" not in each["message"]]
