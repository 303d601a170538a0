"""The page as a browser takes it: nothing from outside, everything escaped, the structure that assistive tools need."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from pipelines.report import Report, make_report
from pipelines.report.blocks import Code, Paragraph, Quoted, Section, Table
from pipelines.report.charts import SERIES, _on
from pipelines.report.page import Page, render
from pipelines.report.plain_text import pieces, shortened, visible

VOID = {"meta", "br", "img", "link", "input", "hr", "path", "use"}
STYLE = Path(__file__).parents[3] / "pipelines/report/templates/style.css"


class Checker(HTMLParser):
    """Collects tags with their attributes, ids, text, and whether all is closed in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def parsed(html: str) -> Checker:
    found = Checker()
    found.feed(html)
    found.close()
    assert found.open == []
    return found


@pytest.fixture(scope="module")
def page(report: Report) -> Checker:
    return parsed(report.html)


def test_nothing_comes_from_outside(report: Report, page: Checker) -> None:
    for _, attributes in page.tags:
        for name in ("src", "href", "action", "data", "poster", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert not re.search(r"https?://|@import|url\((?!#)", report.html)
    assert page.all("script") == page.all("iframe") == page.all("link") == []
    (policy,) = [one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_ids_are_unique_and_every_reference_leads_to_one(report: Report, page: Checker) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    references = [a["href"][1:] for _, a in page.tags if (a.get("href") or "").startswith("#")]
    references += re.findall(r"url\(#([^)]+)\)", report.html)
    references += [a["aria-labelledby"] for _, a in page.tags if a.get("aria-labelledby")]
    assert len(references) > 100
    assert set(references) <= set(ids)


def test_hostile_texts_stay_texts(report: Report, page: Checker) -> None:
    assert page.all("img") == page.all("b") == []
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    text = "".join(page.text)
    for one in ('</script><img src=x onerror="alert(1)">', '"it\'s" & <b>{{ 7 * 7 }}</b> $x^2$', 'style="x" </td>'):
        assert one in text
    # The override is named, not obeyed.
    assert "\u202e" not in report.html
    assert "U+202E" in text


def test_texts_of_the_user_are_isolated_and_have_a_direction(page: Checker) -> None:
    isolated = page.all("bdi")
    assert len(isolated) > 100
    assert {one.get("dir") for one in isolated} == {"auto"}
    assert any(one.get("lang") == "und-Arab" for one in isolated)
    assert {one.get("dir") for one in page.all("code")} == {"ltr"}
    (root,) = page.all("html")
    assert (root["lang"], root["dir"]) == ("en", "ltr")


def test_assistive_tools_find_their_way(page: Checker) -> None:
    drawings = [attributes for tag, attributes in page.tags if attributes.get("role") == "img"]
    assert len(drawings) == len(page.all("svg")) == len(page.all("figure")) > 5
    assert all(len(one["aria-label"] or "") > 40 for one in drawings)
    assert len(page.all("table")) == len(page.all("caption"))
    assert {one.get("scope") for one in page.all("th")} == {"col", "row"}
    assert all(one.get("tabindex") == "0" for _, one in page.tags if one.get("role") == "region")
    headings = [tag for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == "h1"
    assert set(headings[1:]) == {"h2"}


def test_provenance_comes_first_and_the_limits_stand_there(report: Report, page: Checker) -> None:
    sections = [one["id"] for one in page.all("section")]
    assert sections == ["summary", "provenance", "behaviour", "scores", "states", "warnings", "limits", "words"]
    text = " ".join("".join(page.text).split())
    for said in (
        "The run small gave 21 prompts to one model", "builtin:sarf-nano", report.record["provenance"]["model_sha256"],
        "architecture is llama: 5 layers of width 128", "36 are of type Q8_0 and 11 of type F32", "Contract",
        "rung of validation is activation reference", "always the likeliest",
        report.record["provenance"]["semantic_hash"],
        "No probe was run on this run’s states", "There are only 21 prompts",
    ):  # fmt: skip
        assert said in text, said


def test_the_same_run_gives_the_same_bytes(small: Path, report: Report) -> None:
    again = make_report(small)
    assert again.html == report.html
    assert again.figures == report.figures
    assert not re.search(r"\b20\d\d-\d\d-\d\d", report.html)
    assert str(small.parent) not in report.html


def test_a_page_escapes_wherever_a_text_may_stand() -> None:
    bad = '"><script>alert(1)</script>'
    section = Section(
        "x",
        bad,
        (
            Paragraph((bad, Quoted(bad), Code(bad))),
            Table((Quoted(bad),), (bad, Quoted(bad)), ((Quoted(bad), (bad, Code(bad))),)),
        ),
    )
    html = render(Page((Quoted(bad),), (Quoted(bad),), ((Quoted(bad),),), (section,), bad))
    assert parsed(html).all("script") == []
    assert "<script" not in html


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_any_text_at_all_comes_out_as_it_is(text: str) -> None:
    section = Section("x", text, (Paragraph((text, Quoted(text), Code(text))), Table((text,), (text,), ((text,),))))
    html = render(Page((Quoted(text),), (text,), ((text,),), (section,), "0"))
    told = parsed(html)
    assert len(told.all("bdi")) == 2
    assert not any(character in html for character in "\u202e\u2066\u0000")
    bare = "".join(visible(text).replace("[", "").replace("]", "").split())
    assert bare in "".join("".join(told.text).replace("[", "").replace("]", "").split())


def test_a_browser_opens_it_from_disk(report: Report, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium: `apt-get install chromium` to let a browser read the page")
    path = tmp_path / "report.html"
    path.write_text(report.html, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    command = [browser, *options, "--host-resolver-rules=MAP * ~NOTFOUND", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    # What the browser made of it, with every tag that it had to add or drop.
    dom, source = parsed(done.stdout), parsed(report.html)
    for tag in ("section", "table", "caption", "figure", "svg", "bdi", "h2"):
        assert len(dom.all(tag)) == len(source.all(tag)) > 0
    assert "".join("".join(dom.text).split()) == "".join("".join(source.text).split())


# --- texts ------------------------------------------------------------------------------------------------------------


def test_what_cannot_be_seen_is_named() -> None:
    assert visible("a\u202eb\u0000\n\u200f") == "a[U+202E]b[U+0000]↵[U+200F]"
    # Joiners shape Persian and stay.
    assert pieces("می\u200cخواهم") == [("می\u200cخواهم", False)]


def test_a_cut_parts_no_letter_from_its_marks() -> None:
    word = "مُسْتَشْفًى" * 4
    cut = shortened(word, 12)
    assert cut.endswith("…")
    assert len(cut) <= 12
    assert shortened("kurz", 12) == "kurz"


# --- colours ----------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def schemes() -> dict[str, dict[str, str]]:
    blocks = re.findall(r":root \{(.*?)\}", STYLE.read_text(encoding="utf-8"), flags=re.DOTALL)
    return dict(
        zip(("light", "dark", "print"), (dict(re.findall(r"--([\w-]+): (#\w{6})", b)) for b in blocks), strict=True)
    )


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_contrast_is_enough(scheme: str) -> None:
    colours = schemes()[scheme]
    for name in ("ink", "soft", "link", "good", "bad", "mark"):
        for ground in ("ground", "band"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (scheme, name, ground)
    for i in range(1, len(SERIES) + 1):
        assert contrast(colours[f"series-{i}"], colours["ground"]) >= 3, (scheme, i)


def test_the_colours_of_figures_are_those_of_the_light_scheme() -> None:
    light = schemes()["light"]
    assert [light[f"series-{i}"] for i in range(1, len(SERIES) + 1)] == list(SERIES)


@pytest.mark.parametrize("value", [i / 20 for i in range(21)])
def test_numbers_in_a_heat_map_stand_out_from_their_cells(value: float) -> None:
    ground = to_hex(matplotlib.colormaps["viridis"].resampled(64)(value))
    assert contrast(_on(value, 0.0, 1.0), ground) >= 4.5
