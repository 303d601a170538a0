import io
import sys

import pytest

from pipelines.drive import Step
from pipelines.progress import Lines, Meter, clock, make_reporter, trouble
from pipelines.receipts import Receipt


def done(piece: str, rows: int = 100, generated: int = 0) -> Step:
    return Step("done", piece, Receipt(piece, 0, 1, (), rows, rows, generated))


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.2, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_times_are_written_for_people(seconds: float, told: str) -> None:
    assert clock(seconds) == told


def test_the_time_left_goes_by_prompts_and_the_speed_by_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    meter = Meter(units=4, done=0, rows=400)
    assert meter.eta is None
    now = 110.0
    meter.add(done("00000", rows=100, generated=300))
    assert meter.speed == pytest.approx(40)
    assert meter.eta == pytest.approx(30)
    assert str(meter) == "40 tok/s, 30 s left"


def test_a_split_is_one_piece_more() -> None:
    meter = Meter(units=2, done=1, rows=10)
    meter.add(Step("split", "00001"))
    assert (meter.done, meter.units) == (1, 3)
    meter.add(done("00001-0"))
    meter.add(Step("isolated", "00001-1"))
    assert (meter.done, meter.units) == (3, 3)


def test_without_a_terminal_there_are_few_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = make_reporter()
    assert isinstance(reporter, Lines)
    reporter.begin(100, 0, 1000)
    for i in range(100):
        reporter.step(done(f"{i:05d}", rows=10))
    reporter.step(Step("retry", "00007", detail="the worker was ended by signal 9 (SIGKILL)"))
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "unit 00007 failed and is tried again: the worker was ended by signal 9 (SIGKILL)\n"


def test_text_of_users_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.progress import Bar

    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    bar = make_reporter()
    assert isinstance(bar, Bar)
    bar.say("[red]prompt[/red] [/broken")
    bar.begin(3, 1, 30)
    bar.step(done("00001"))
    bar.step(Step("isolated", "00002", detail="ValueError: [bold]x[/wrong]"))
    bar.end()
    assert "[red]prompt[/red] [/broken" in screen.getvalue()
    assert "[bold]x[/wrong]" in screen.getvalue()


def test_trouble_is_told_in_a_line() -> None:
    assert trouble(Step("split", "00003", detail="cause")) == "unit 00003 failed and is split into halves: cause"
