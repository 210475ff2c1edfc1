// One map, large, with its tokens: pointing at a token, or at a cell, shows where it looks.
//
// In: a map, and whether [CLS] and [SEP] are hidden. Out: { element, show(map, options) }: the strip of tokens with
// lines to those it looks at most, the map on a canvas, and the strongest links as a list.
//
// Notable choice: what the pointer asks for is drawn once a frame, however often the pointer moves.

import { h, replace } from "../dom.js";
import { bars } from "../parts/bars.js";
import { heatMap } from "../parts/heat_map.js";
import { links } from "../parts/links.js";
import { liveliest, profile, strongest, withoutFrame } from "../parts/maps.js";
import { tokenStrip } from "../parts/token_strip.js";

const LINKS = 6;

export function looking(page, { pin }) {
  let map = null;
  let pinned = null; // what is shown while nothing is pointed at
  let shown = null; // { place, column, incoming }: a token, the other one if a cell is pointed at, and the direction
  let next = null;
  let frame = 0;
  let direction = false; // incoming?
  let redrawLines = () => {};
  let both = false; // rows and columns are tokens of different texts

  const back = () => later(pinned);
  const press = (wanted) => {
    pinned = wanted;
    pin((wanted.incoming ? map.columns : map.rows)[wanted.place].place);
    later(wanted);
  };
  const rows = strip("attention.tokens", () => !both && direction);
  const columns = strip("attention.read", () => true);
  const area = h("div", { class: "token-area" }, rows.element);
  const lines = links(area);
  const cellOf = ({ row, column }) =>
    direction ? { place: column, column: row, incoming: true } : { place: row, column, incoming: false };
  const big = heatMap({
    over: (cell) => (cell ? later(cellOf(cell)) : back()),
    out: back,
    press: (cell) => cell && press({ ...cellOf(cell), column: -1 }),
  });
  const list = h("div", { class: "looks" });
  new ResizeObserver(() => shown && area.clientWidth && draw(shown, true)).observe(area);
  const scale = h("div", { class: "scale" });
  const element = h(
    "div",
    { class: "looking" },
    area,
    h("div", { class: "looking-parts" }, h("div", {}, big.element, scale), list),
  );

  // In a strip of rows a token shows where it looks, unless asked otherwise; in one of columns what looks at it.
  function strip(key, incoming) {
    const wanted = (place) => ({ place, column: -1, incoming: incoming() });
    return tokenStrip({
      label: page.t(key),
      over: (place) => later(wanted(place)),
      out: back,
      press: (place) => press(wanted(place)),
      scrolled: () => redrawLines(),
      focused: (place) => {
        later(wanted(place));
        page.announce(sentence(wanted(place)));
      },
    });
  }

  // `token`: the place in the row of the token that is pinned, or -1.
  function show(found, { label, hide, incoming, token }) {
    both = found.rows !== found.columns;
    map = hide ? withoutFrame(found) : found;
    direction = incoming;
    const known = (incoming ? map.columns : map.rows).findIndex((one) => one.place === token);
    pinned = { place: known >= 0 ? known : liveliest(map, incoming), column: -1, incoming };
    rows.show(map.rows);
    columns.show(both ? map.columns : []);
    const second = both ? [h("p", { class: "strip-name" }, page.t("attention.read")), columns.element] : [];
    replace(area, rows.element, second, lines.element);
    big.show(map, label);
    const largest = map.values.reduce((most, value) => Math.max(most, value), 0);
    replace(scale, page.language.percent(0), h("span", { class: "scale-bar" }), page.language.percent(largest));
    draw(pinned, true);
  }

  function later(wanted) {
    if (!wanted) return;
    next = wanted;
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      draw(next);
    });
  }

  function draw(wanted, again = false) {
    const { place, column, incoming } = wanted;
    const same = !again && shown?.place === place && shown.incoming === incoming;
    shown = wanted;
    big.mark(incoming ? column : place, incoming ? place : column);
    if (same) return;
    const weights = profile(map, place, incoming);
    const largest = weights.reduce((most, value) => Math.max(most, value), 1e-9);
    const [from, to] = !both ? [rows, rows] : incoming ? [columns, rows] : [rows, columns];
    if (both) from.weigh(null, 1, place);
    to.weigh(weights, largest, both ? -1 : place);
    const best = strongest(weights, LINKS);
    const ranked = best.map((n) => row((incoming ? map.rows : map.columns)[n], weights[n]));
    replace(list, h("h4", {}, heading(wanted)), bars(ranked, { longest: largest }));
    from.reveal(place);
    redrawLines = () =>
      lines.draw(
        from.nodeOf(place),
        best.map((n) => ({ node: to.nodeOf(n), weight: weights[n] / largest })),
      );
    redrawLines();
  }

  const heading = ({ place, incoming }) =>
    incoming
      ? page.t("attention.lookers", { token: map.columns[place].label })
      : page.t("attention.looks", { token: map.rows[place].label });
  const row = (token, weight) => ({
    label: token.label,
    value: weight,
    shown: page.language.percent(weight),
    title: page.t("attention.place", { place: token.place }),
  });

  function sentence({ place, incoming }) {
    const weights = profile(map, place, incoming);
    const others = incoming ? map.rows : map.columns;
    const best = strongest(weights, 3).map((n) => `${others[n].label} ${page.language.percent(weights[n])}`);
    return `${heading({ place, incoming })} ${best.join(", ")}`;
  }

  return { element, show };
}
