from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.report import render_html
from analysis.report.finish import finish_run
from analysis.report.html import links_in_words
from analysis.report.run_figures import run_figures
from analysis.runs.run import load_run
from tests.report.chromium import Page
from tests.report.synthetic_run import make_run
from topologies.spec.spec import parse_spec

LIMIT_BYTES = 3_000_000

SECTIONS = ("time", "timeline", "fabric", "prediction", "queues", "traffic")


def complaints(page: Page) -> list[Any]:
    logged = [e for e in page.methods("Log.entryAdded") if e["entry"]["level"] == "error"]
    return [
        *page.methods("Runtime.exceptionThrown"),
        *[e for e in page.methods("Runtime.consoleAPICalled") if e["type"] in ("error", "assert")],
        *logged,
    ]


def report_of(directory: Path) -> Path:
    """The page of a run that has one."""
    path = finish_run(load_run(directory)).report
    assert path is not None
    return path


def requests(page: Page) -> list[str]:
    """The addresses that were asked for beyond the page itself; data: addresses stay in the
    page."""
    urls = [e["request"]["url"] for e in page.methods("Network.requestWillBeSent")]
    return [url for url in urls if not url.startswith("data:")][1:]


def test_the_page_loads_nothing_and_draws_everything(page: Page, run_directory: Path) -> None:
    path = report_of(run_directory)
    page.open(path)
    assert complaints(page) == []
    assert requests(page) == []
    assert path.stat().st_size < LIMIT_BYTES
    for section in SECTIONS:
        marks = page.evaluate(
            f"[...document.querySelectorAll('#{section} figure svg')].flatMap(svg => "
            "[...svg.querySelectorAll('rect, path, circle, line')]).filter(mark => "
            "!mark.matches('.grid')).length"
        )
        assert marks >= 2, section
    # A link per direction of 48 links, a node per host and switch.
    assert page.evaluate("document.querySelectorAll('#fabric .link').length") == 96
    assert page.evaluate("document.querySelectorAll('#fabric .host, #fabric .switch').length") == 36
    assert page.evaluate("document.querySelectorAll('#queues path.queue').length") == 3
    assert page.evaluate("document.querySelectorAll('#traffic rect[data-tip]').length") == 256


def test_nothing_sticks_out_of_its_drawing(page: Page, run_directory: Path) -> None:
    page.open(report_of(run_directory))
    outside = page.evaluate(
        """[...document.querySelectorAll('figure .view:not([hidden]) svg')].flatMap(svg => {
             const box = svg.getBoundingClientRect();
             return [...svg.querySelectorAll('rect, path, circle, line, text')].filter(mark => {
               const b = mark.getBoundingClientRect();
               return b.left < box.left - 2 || b.right > box.right + 2 ||
                      b.top < box.top - 2 || b.bottom > box.bottom + 2;
             }).map(mark => mark.outerHTML.slice(0, 200));
           })"""
    )
    assert outside == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_tables_sort_by_value_both_ways(page: Page, run_directory: Path) -> None:
    page.open(report_of(run_directory))
    column = (
        "(() => { const t = [...document.querySelectorAll('table.sortable')].find(t => "
        "t.tHead.textContent.includes('deepest queue'));"
        "const i = [...t.tHead.rows[0].cells].findIndex(c => c.textContent === 'deepest queue');"
        "if (CLICK) t.tHead.rows[0].cells[i].querySelector('button').click();"
        "return [...t.tBodies[0].rows].map(r => Number(r.cells[i].dataset.v)); })()"
    )
    before = page.evaluate(column.replace("CLICK", "false"))
    falling = page.evaluate(column.replace("CLICK", "true"))
    rising = page.evaluate(column.replace("CLICK", "true"))
    assert before not in (falling, rising)
    assert falling == sorted(before, reverse=True) and rising == sorted(before)
    heading = "[...document.querySelectorAll('th')].filter(t => t.ariaSort)"
    assert page.evaluate(f"{heading}.length") == 1
    assert page.evaluate(f"{heading}[0].ariaSort") == "ascending"


def test_iterations_can_be_chosen(page: Page, run_directory: Path) -> None:
    page.open(report_of(run_directory))
    shown = "[...document.querySelectorAll('#timeline .view')].map(v => !v.hidden)"
    assert page.evaluate(shown) == [True, False]
    page.evaluate("document.querySelectorAll('#timeline .views button')[1].click()")
    assert page.evaluate(shown) == [False, True]


def test_hovering_shows_the_figures_of_a_link(page: Page, run_directory: Path) -> None:
    # A window that holds the page: scrolling hides the tip, whenever its event comes.
    page.resize(1240, 6000)
    page.open(report_of(run_directory))
    x, y = page.evaluate(
        "(() => { const b = document.querySelector('#fabric .switch').getBoundingClientRect();"
        "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert page.evaluate("document.getElementById('tip').hidden") is False
    assert "4 ports" in page.evaluate("document.getElementById('tip').textContent")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(page: Page, run_directory: Path, scheme: str) -> None:
    page.open(report_of(run_directory))
    page.emulate(scheme=scheme)
    ratios = page.evaluate(
        """(() => {
          const light = (c) => {
            const [r, g, b] = c.match(/[0-9.]+/g).map(Number).map(v => v / 255)
              .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const paper = light(getComputedStyle(document.documentElement).backgroundColor);
          const ratio = (c) => {
            const l = light(c);
            return (Math.max(l, paper) + 0.05) / (Math.min(l, paper) + 0.05);
          };
          const texts = ['h1', '.caption', '.remark', 'nav a', '.verdict b', 'td']
            .map(s => getComputedStyle(document.querySelector(s)).color);
          const marks = ['p0', 'p1', 'p2'].map(c => {
            const e = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
            e.setAttribute('class', c);
            document.querySelector('figure svg').append(e);
            return getComputedStyle(e).fill;
          });
          return [texts.map(ratio), marks.map(ratio)];
        })()"""
    )
    texts, marks = ratios
    # WCAG 2.2: 4.5 for text (1.4.3), 3 for what a graphic is made of (1.4.11).
    assert min(texts) >= 4.5, texts
    assert min(marks) >= 3, marks


def test_runs_stand_side_by_side(
    page: Page, run_directory: Path, slower_directory: Path, tmp_path: Path
) -> None:
    path = tmp_path / "both.html"
    path.write_text(render_html(run_figures([run_directory, slower_directory])))
    page.resize(1480, 900)
    page.open(path)
    assert complaints(page) == [] and requests(page) == []
    for section in SECTIONS:
        boxes = page.evaluate(
            f"[...document.querySelectorAll('#{section} figure')].map(f => "
            "[f.getBoundingClientRect().left, f.getBoundingClientRect().top])"
        )
        (left, top), (right, other_top) = boxes
        assert right > left and top == other_top, section
    # A bar of the slower run is longer: the axes are the same.
    widths = page.evaluate(
        "[...document.querySelectorAll('#prediction figure')].map(f => "
        "f.querySelector('rect.measured').getBoundingClientRect().width)"
    )
    assert widths[1] > 1.5 * widths[0]
    assert "against fat-tree" in page.evaluate("document.querySelector('.beside').textContent")


def test_what_comes_from_the_run_is_escaped(page: Page, slower_directory: Path) -> None:
    page.open(report_of(slower_directory))
    assert page.evaluate("document.querySelectorAll('.verdict.invalid').length") == 1
    reasons = page.evaluate("document.querySelector('.reasons').textContent")
    assert "a <b>hog</b> ran" in reasons
    assert (
        page.evaluate("[...document.querySelectorAll('b')].some(b => b.textContent === 'hog')")
        is False
    )


def test_paper_is_light_and_shows_every_table(page: Page, run_directory: Path) -> None:
    page.open(report_of(run_directory))
    page.emulate(media="print", scheme="dark")
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert background == "rgb(255, 255, 255)"
    page.call("Page.printToPDF")
    assert page.evaluate("[...document.querySelectorAll('details')].every(d => d.open)")


@pytest.mark.parametrize(
    ("fabric", "ranks"),
    [
        ("kind: torus, dims: [4, 4]", 16),
        ("kind: torus, dims: [4, 4, 4]", 64),
        ("kind: flat, hosts: 128", 128),
        ("kind: leaf-spine, leaves: 4, spines: 2, hosts_per_leaf: 4", 16),
        ("kind: fat-tree, k: 8", 128),
    ],
)
def test_every_kind_of_fabric_is_drawn_in_a_small_page(
    tmp_path: Path, fabric: str, ranks: int
) -> None:
    directory = make_run(tmp_path / "run", fabric, ranks)
    html = render_html(run_figures([directory]))
    assert len(html.encode()) < LIMIT_BYTES
    assert html.count('class="link') >= ranks
    assert html.count('class="host"') == ranks


def test_links_that_differ_are_told_by_their_ends() -> None:
    text = """
name: links
fabric:
  kind: leaf-spine
  leaves: 2
  spines: 1
  hosts_per_leaf: 2
  link: {rate: 25Gbps, delay: 1us, mtu: 9000}
workload: {kind: collectives, ranks: 4, operations: [{kind: all_reduce, size: 1MB}]}
"""
    alike = parse_spec(text).plan.fabric
    assert links_in_words(alike.links) == "25Gbps, 1us, MTU 9000"
    above = "  links: {leaf-spine: {rate: 12.5Gbps, delay: 2us}}\n"
    slower = text.replace("workload:", f"{above}workload:")
    differ = parse_spec(slower).plan.fabric
    assert links_in_words(differ.links) == "12.5Gbps to 25Gbps, 1us to 2us, MTU 9000"
