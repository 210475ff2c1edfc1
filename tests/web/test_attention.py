"""The tab Attention: what is drawn and said are the weights of `/v1/explain`, in both languages, for pairs, translators
and models without attention; 512 tokens stay fluent."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from browsing import Page

ENGLISH = "The animal didn't cross the street because it was too tired."
CHINESE = "那只动物没有过马路，因为它太累了。"
TEXTS = {"en": ENGLISH, "zh": CHINESE}
ORDINARY = "the old captain watches a young sailor at dawn with seven lanterns and one gull near some quiet harbour"
DRAWN, REDRAWN = 1000, 50  # ms

# The colours of all cells of the large map: red, green and blue at the middle of each. Beyond 44 tokens there are no
# labels, so the map fills its canvas but for a frame of one pixel.
CELLS = """(count) => {
    const canvas = document.querySelector(".heat-map");
    const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const cell = (parseFloat(canvas.style.width) - 2) / count;
    const middle = (number) => Math.floor(1 + (number + 0.5) * cell);
    const found = [];
    for (let row = 0; row < count; row += 1)
        for (let column = 0; column < count; column += 1) {
            const at = 4 * (middle(row) * width + middle(column));
            found.push(...data.slice(at, at + 3));
        }
    return found;
}"""


def words(count: int, seed: int = 1) -> str:
    return " ".join(random.Random(seed).choices(ORDINARY.split(), k=count))


def weights(page: Page, **body: Any) -> tuple[np.ndarray, list[dict[str, Any]]]:
    found = page.answer("/v1/explain", {"model": "minilm", **body})
    return np.array(found["rollout"] if "rollout" in found else found["weights"]), found["tokens"]


def looks(panel: Any) -> list[tuple[str, str]]:
    """The strongest links as they are listed."""
    rows = panel.locator(".looks .bar").all()
    return [(row.locator(".bar-name").inner_text(), row.locator(".bar-value").inner_text()) for row in rows]


def strongest(row: np.ndarray, labels: list[str]) -> list[tuple[str, str]]:
    order = np.argsort(-row, kind="stable")[:6]
    return [(labels[n], f"{100 * row[n]:.1f}%") for n in order]


def hide_frame(map: np.ndarray, tokens: list[dict[str, Any]]) -> np.ndarray:
    keep = [n for n, token in enumerate(tokens) if token["start"] is not None]
    kept = map[np.ix_(keep, keep)]
    return kept / kept.sum(1, keepdims=True)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_head_has_a_picture_and_a_token_shows_where_it_looks(page: Page, lang: str) -> None:
    panel = page.open("attention", lang, model="minilm", text=TEXTS[lang], layer=5, head=6)
    assert panel.locator(".head-cell").count() == 6 * 12
    expected, tokens = weights(page, text=TEXTS[lang], layers=[2], heads=[3])
    panel.locator(".head-cell").nth(12 + 2).click()  # the second row, the third column
    page.settled()
    name = {"en": "Layer 2, head 3", "zh": "第 2 层，第 3 头"}[lang]
    assert panel.get_by_role("heading", name=name, exact=True).is_visible()
    assert panel.get_by_role("button", name=name, exact=True).get_attribute("aria-pressed") == "true"
    labels = [token["text"].strip() for token in tokens]
    assert panel.locator(".token").all_inner_texts() == labels
    for place in (1, 2, len(tokens) - 2):
        panel.locator(".token").nth(place).hover()
        panel.locator(f'.token:nth-of-type({place + 1})[aria-current="true"]').wait_for()
        assert looks(panel) == strongest(expected[0, 0, place], labels)
    assert "head=3" in page.hash and "layer=2" in page.hash


def test_the_strip_is_walked_with_the_keys_and_told(page: Page) -> None:
    panel = page.open("attention", model="minilm", text=ENGLISH, layer=5, head=6)
    expected, tokens = weights(page, text=ENGLISH, layers=[5], heads=[6])
    labels = [token["text"] for token in tokens]
    panel.locator(".token").first.focus()
    for _ in range(10):
        page.tab.keyboard.press("ArrowRight")
    panel.locator('.token[aria-current="true"]', has_text="it").wait_for()
    (best, share), *_ = strongest(expected[0, 0, 10], labels)
    assert page.said.startswith(f"“it” looks at {best} {share}")
    page.tab.keyboard.press("Enter")  # pins it
    panel.locator(".token").nth(3).hover()
    panel.get_by_role("heading", name="“didn” looks at").wait_for()
    page.tab.mouse.move(1, 1)
    panel.get_by_role("heading", name="“it” looks at").wait_for()
    assert "token=10" in page.hash
    page.tab.reload()
    page.settled().get_by_role("heading", name="“it” looks at").wait_for()
    page.tab.locator(".head-cell[tabindex='0']").focus()
    page.tab.keyboard.press("ArrowDown")
    page.tab.keyboard.press("ArrowRight")
    page.tab.keyboard.press("Enter")
    page.settled().get_by_role("heading", name="Layer 6, head 7").wait_for()


SHOWN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"layer": 4, "head": 7}, {"layers": [4], "heads": [7]}),
    ({"layer": 2, "show": "mean"}, {"layers": [2]}),
    ({"show": "rollout"}, {"thumbnails": 1, "rollout": True}),
    ({"layer": 6, "head": 12, "hide": 1}, {"layers": [6], "heads": [12]}),
]


@pytest.mark.parametrize(("state", "body"), SHOWN, ids=["head", "mean", "rollout", "hide"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colour_of_each_cell_is_its_weight(
    open_page: Any, server: Any, state: dict[str, Any], body: dict[str, Any], scheme: str
) -> None:
    page = open_page(server.url, color_scheme=scheme)
    text = words(50)
    page.open("attention", model="minilm", text=text, **state)
    found, tokens = weights(page, text=text, **body)
    map = found if found.ndim == 2 else found[0].mean(0)
    map = hide_frame(map, tokens) if "hide" in state else map
    drawn = np.array(page.tab.evaluate(CELLS, len(map))).reshape(*map.shape, 3)
    zero, full = ({"light": (0xFFFFFF, 0x0B4AA2), "dark": (0x10151B, 0x8FC2FF)})[scheme]
    ends = np.array([[colour >> 16, colour >> 8 & 255, colour & 255] for colour in (zero, full)])
    strength = np.sqrt(map / map.max())[..., None]
    assert np.abs(drawn - (ends[0] + strength * (ends[1] - ends[0]))).max() <= 2  # 256 colours, each rounded
    assert np.ptp(drawn[..., 0]) > 100


def test_hidden_tokens_are_gone_and_the_others_sum_to_one(page: Page) -> None:
    panel = page.open("attention", model="minilm", text=ENGLISH, layer=5, head=6, token=10)
    found, tokens = weights(page, text=ENGLISH, layers=[5], heads=[6])
    panel.get_by_label("hide [CLS] and [SEP]").check()
    page.settled()
    labels = [token["text"] for token in tokens[1:-1]]
    assert panel.locator(".token").all_inner_texts() == labels
    assert looks(panel) == strongest(hide_frame(found[0, 0], tokens)[9], labels)
    assert panel.get_by_text("scaled to sum to 100 %").is_visible()
    panel.get_by_label("A token shows").select_option("incoming")
    page.settled()
    assert looks(panel) == strongest(hide_frame(found[0, 0], tokens)[:, 9], labels)
    assert panel.get_by_role("heading", name="“it” is looked at by").is_visible()


@pytest.mark.parametrize("lang, second", [("en", "Second text (may stay empty)"), ("zh", "第二段文本（可留空）")])
def test_a_pair_is_one_row(page: Page, lang: str, second: str) -> None:
    panel = page.open("attention", lang, model="minilm", text="A keel.")
    panel.get_by_label(second).fill("The spine of a 🙂 ship.")
    panel.get_by_label(second).press("Control+Enter")
    page.settled()
    pair = {"text": "A keel.", "pair": "The spine of a 🙂 ship."}
    found = page.answer("/v1/explain", {"model": "minilm", **pair, "layers": [1], "heads": [1]})
    assert panel.locator(".token").all_inner_texts() == [token["text"] for token in found["tokens"]]
    assert "🙂" in panel.locator(".token").all_inner_texts()
    assert panel.locator(".token-strip br").count() == 1


def test_a_translator_shows_what_its_decoder_reads(page: Page) -> None:
    panel = page.open("attention", model="translator", text="the captain sails")
    cross = page.answer("/v1/explain", {"model": "translator", "text": "the captain sails"})
    map = np.array(cross["cross"]["weights"])
    labels = [token["text"] for token in cross["tokens"]]
    written, read = panel.locator(".token-strip").all()
    assert read.locator(".token").all_inner_texts() == labels
    assert written.locator(".token").count() == len(cross["cross"]["written"])
    assert panel.locator(".head-cell").count() == map.shape[0] * map.shape[1]
    written.locator(".token").nth(1).focus()
    panel.locator('.token[aria-current="true"]').wait_for()
    assert looks(panel) == strongest(map[0, 0, 1], labels)
    read.locator(".token").nth(2).focus()
    panel.get_by_role("heading", name="“captain” is looked at by").wait_for()
    assert [share for _, share in looks(panel)] == [
        share for _, share in strongest(map[0, 0, :, 2], [""] * map.shape[2])
    ]
    panel.get_by_label("Attention of").select_option("encoder")
    page.settled()
    assert panel.locator(".token-strip:not(:empty)").count() == 1


def test_a_fine_tuned_model_shows_its_attention(page: Page) -> None:
    panel = page.open("attention", model="tagger", text="The gull remembers.", head=2)
    found = np.array(page.answer("/v1/explain", {"model": "tagger", "text": "The gull remembers."})["weights"])
    assert panel.locator(".head-cell").count() == found.shape[0] * found.shape[1]
    assert panel.get_by_role("heading", name="Layer 1, head 2").is_visible()


def test_a_text_is_never_markup_and_too_long_a_text_is_an_error_in_words(page: Page) -> None:
    script = "<script>document.title = 'broken'</script><img src=x onerror=alert(1)>"
    panel = page.open("attention", model="minilm", text=script)
    assert "".join(panel.locator(".token").all_inner_texts()[1:-1]).replace(" ", "") == script.replace(" ", "")
    assert page.tab.title() == "Keel: language encoders"
    page.forgive("status of 422")
    panel = page.open("attention", "zh", model="minilm", text=words(700))
    assert "this model's 512 positions" in panel.get_by_role("alert").inner_text()


WATCH = """() => {
    globalThis.took = [];
    const measure = (event) => {
        const began = event.timeStamp;
        requestAnimationFrame(() => {
            const channel = new MessageChannel();
            channel.port1.onmessage = () => took.push(performance.now() - began);
            channel.port2.postMessage(0); // arrives when the frame is painted
        });
    };
    addEventListener("pointermove", measure, true);
}"""


SHOWN_ROW = """(row) => {
    const all = Array.from(document.querySelectorAll(".token"));
    return Math.abs(all.findIndex((one) => one.ariaCurrent === "true") - row) <= 1; // a row is as high as a pixel
}"""


@pytest.fixture(scope="module")
def encoder(start_server: Any, minilm: Any) -> Any:
    return start_server(f"minilm={minilm}")


@pytest.mark.clock
def test_512_tokens_are_drawn_in_a_second_and_redrawn_in_50_ms(open_page: Any, encoder: Any) -> None:
    page = open_page(encoder.url)
    panel = page.open("attention", model="minilm", text=words(488), layer=3, head=5, token=40)
    page.tab.wait_for_function("() => performance.getEntriesByName('keel:drawn').length")
    drawn = page.tab.evaluate("""() => {
        const end = performance.getEntriesByName("keel:drawn")[0].startTime;
        const marks = performance.getEntriesByName("keel:answer").map((mark) => mark.startTime);
        return end - Math.max(...marks.filter((mark) => mark < end));
    }""")
    assert panel.locator(".token").count() == 512
    page.tab.evaluate(WATCH)
    for place in range(3, 80, 4):
        panel.locator(".token").nth(place).hover()
        panel.locator(f'.token:nth-of-type({place + 1})[aria-current="true"]').wait_for()
    panel.locator(".scale").scroll_into_view_if_needed()
    box = panel.locator(".heat-map").bounding_box()
    for step in range(20):  # rows far from each other: the strip scrolls to each
        row = (step + 1) * 197 % 512
        page.tab.mouse.move(box["x"] + 100 + step, box["y"] + 1 + (row + 0.5) * (box["height"] - 2) / 512)
        page.tab.wait_for_function(SHOWN_ROW, arg=row)
    taken = np.array(page.tab.evaluate("took"))
    median, most = np.percentile(taken, [50, 95])
    print(
        f"512 tokens: drawn {drawn:.0f} ms after the answer; "
        f"{len(taken)} redraws: median {median:.0f}, 95 % {most:.0f} ms"
    )
    assert drawn < DRAWN and most < REDRAWN


def test_lines_stay_in_the_strip_and_follow_it_when_it_scrolls(page: Page) -> None:
    panel = page.open("attention", model="minilm", text=words(200), layer=3, head=5, token=150)
    strip, token = panel.locator(".token-strip").first, panel.locator('.token[aria-current="true"]')
    assert inside(token, strip), "the chosen token is scrolled to"
    panel.locator(".token").nth(1).scroll_into_view_if_needed()
    assert not inside(token, strip)
    drawn = panel.locator(".links").evaluate("""(drawing) => {
        const [frame, clip] = [drawing.getBoundingClientRect(), getComputedStyle(drawing).overflow];
        const strip = drawing.parentElement.querySelector(".token-strip").getBoundingClientRect();
        return [clip, frame.top <= strip.top && frame.bottom < strip.bottom + 20];
    }""")
    assert drawn == ["hidden", True]
    for _ in range(2):  # the lines start at the token, wherever the strip is
        page.tab.wait_for_function("""() => {
            const token = document.querySelector('.token[aria-current="true"]').getBoundingClientRect();
            const [area, path] = [document.querySelector(".token-area"), document.querySelector(".links path")];
            const [x, y] = path.getAttribute("d").split(" ").slice(1, 3).map(Number);
            const from = area.getBoundingClientRect();
            return Math.abs(from.left + x - token.left - token.width / 2) < 2 && from.top + y >= token.top - 2
                && from.top + y <= token.bottom + 2;
        }""")
        panel.locator(".token").nth(199).scroll_into_view_if_needed()


def inside(node: Any, frame: Any) -> bool:
    (one, other) = (each.bounding_box() for each in (node, frame))
    return bool(one["y"] >= other["y"] and one["y"] + one["height"] <= other["y"] + other["height"])
