from __future__ import annotations

from xml.etree import ElementTree

import pytest

from selfplay.views.plots import MOST, Band, Chart, Series, bands, bars, draw, spark, thinned

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>x</script>\x1b[31m\u202e"


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def chart(*series: Series, **other: object) -> Chart:
    return Chart(**{"ident": "c", "title": "t", "series": series, **other})  # type: ignore[arg-type]


def test_a_line_lies_where_its_numbers_say() -> None:
    tree = parsed(draw(chart(Series(name="a", points=((0, 0.0), (1, 1.0))))))
    (line,) = tree.iter(f"{SVG}polyline")
    (x0, y0), (x1, y1) = (tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split())
    assert x0 < x1
    assert y0 > y1, "1 is above 0"
    said = next(tree.iter(f"{SVG}desc")).text
    assert said == "a: 0 % at step 0, 100 % at step 1"


def test_a_gap_ends_a_line_and_a_lone_point_is_a_dot() -> None:
    tree = parsed(draw(chart(Series(name="a", points=((0, 0.1), (1, 0.2), (2, None), (3, 0.3))))))
    assert len(list(tree.iter(f"{SVG}polyline"))) == 2
    assert len(list(tree.iter(f"{SVG}circle"))) == 1


def test_an_interval_is_an_area() -> None:
    series = Series(name="a", points=((0, 0.5), (5, 0.6)), band=((0, 0.4, 0.6), (5, 0.5, 0.7)), dots=True)
    tree = parsed(draw(chart(series)))
    assert len(next(tree.iter(f"{SVG}polygon")).attrib["points"].split()) == 4


@pytest.mark.parametrize("values", [(-1.0, 0.1), (0.0, 0.0), (3.0, 7.0), (-5.0, -2.0)])
def test_every_number_lies_inside_the_picture(values: tuple[float, float]) -> None:
    tree = parsed(draw(chart(Series(name="a", points=tuple(enumerate(values))), percent=False)))
    height = float(tree.attrib["viewBox"].split()[3])
    for pair in next(tree.iter(f"{SVG}polyline")).attrib["points"].split():
        assert 0 <= float(pair.split(",")[1]) <= height


def test_nothing_is_known() -> None:
    assert "nothing known" in draw(chart(Series(name="a", points=())))
    parsed(bars("b", "t", [], unit="s"))


def test_stacked_bars_add_up() -> None:
    tree = parsed(bars("b", "time", [("step 0", {"x": 1.0, "y": 3.0}), ("step 1", {"x": 2.0, "y": 0.0})], unit="s"))
    tall = [float(rect.attrib["height"]) for rect in tree.iter(f"{SVG}rect")][:3]
    assert tall[1] == pytest.approx(3 * tall[0], abs=0.11)
    assert tall[2] == pytest.approx(2 * tall[0], abs=0.11)
    assert next(tree.iter(f"{SVG}desc")).text == "x 50 %, y 50 %"


def test_a_band_is_as_high_as_its_highest_moment() -> None:
    rows = [Band(label="a", values=(0.01, 0.02), most=3), Band(label="b", values=(), most=0)]
    tree = parsed(bands("m", "t", rows, ends=("x", "y")))
    tall = [float(rect.attrib["height"]) for rect in tree.iter(f"{SVG}rect")]
    assert tall[1] == pytest.approx(2 * tall[0], abs=0.11)
    words = [text.text for text in tree.iter(f"{SVG}text")]
    assert words == ["a: at most 3 at the same time", "b: at most 0 at the same time", "x", "y"]


def test_text_is_text() -> None:
    for svg in (
        draw(chart(Series(name=HOSTILE, points=((0, 0.1),)), title=HOSTILE)),
        bars("b", HOSTILE, [(HOSTILE, {HOSTILE: 1.0})], unit=HOSTILE),
        spark([0.1, None, 0.5], HOSTILE + '"'),
    ):
        parsed(svg)
        assert "<script" not in svg
        assert "\x1b" not in svg
        assert "\u202e" not in svg


def test_many_points_are_taken_together() -> None:
    points = [(float(i), 1.0, 2.0) for i in range(1000)]
    found = thinned(points)
    assert len(found) <= MOST
    assert all(value == 0.5 for _, value in found)
    assert found[-1][0] == 999
    assert thinned([(0.0, 0.0, 0.0)]) == ((0.0, None),)
