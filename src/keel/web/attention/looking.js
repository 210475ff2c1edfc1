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
  let pinned = 0; // places among the rows shown
  let shown = {};
  let incoming = false;
  let frame = 0;
  let next = null;
  let both = false;

  const at = (place, column = -1) => later({ place, column });
  const back = () => later({ place: pinned, column: -1 });
  const press = (place) => {
    pinned = place;
    pin((incoming ? map.columns : map.rows)[place].place);
    at(place);
  };
  const told = (place) => {
    at(place);
    page.announce(sentence(place));
  };
  const strip = (key) => tokenStrip({ label: page.t(key), over: at, out: back, press, focused: told });
  const rows = strip("attention.tokens");
  const columns = strip("attention.read");
  const area = h("div", { class: "token-area" }, rows.element);
  const lines = links(area);
  const big = heatMap({
    over: (cell) => (cell ? at(incoming ? cell.column : cell.row, incoming ? cell.row : cell.column) : back()),
    out: back,
    press: (cell) => cell && press(incoming ? cell.column : cell.row),
  });
  const list = h("div", { class: "looks" });
  new ResizeObserver(() => map && area.clientWidth && draw(shown, true)).observe(area);
  const element = h("div", { class: "looking" }, area, h("div", { class: "looking-parts" }, big.element, list));

  // `token`: the place in the row of the token that is pinned, or -1.
  function show(found, { label, hide, direction, token }) {
    map = hide ? withoutFrame(found) : found;
    incoming = direction === "incoming";
    const two = map.rows !== map.columns && found.rows !== found.columns;
    const known = (incoming ? map.columns : map.rows).findIndex((one) => one.place === token);
    pinned = known >= 0 ? known : incoming ? 0 : liveliest(map);
    if (map.rows.length) rows.show(map.rows);
    columns.show(two ? map.columns : []);
    replace(
      area,
      rows.element,
      two ? h("p", { class: "strip-name" }, page.t("attention.read")) : null,
      two ? columns.element : null,
    );
    area.append(lines.element);
    both = two;
    big.show(map, label);
    draw({ place: pinned, column: -1 }, true);
  }

  function later(wanted) {
    if (!map) return;
    if (!frame) {
      frame = requestAnimationFrame(() => {
        frame = 0;
        draw(next);
      });
    }
    next = wanted;
  }

  function draw({ place, column = -1 }, again = false) {
    const weights = profile(map, place, incoming);
    big.mark(incoming ? column : place, incoming ? place : column);
    if (shown.place === place && !again) return;
    shown = { place };
    const largest = weights.reduce((most, value) => Math.max(most, value), 1e-9);
    const [from, to] = both ? (incoming ? [columns, rows] : [rows, columns]) : [rows, rows];
    if (both) from.weigh(null, 1, place);
    to.weigh(weights, largest, both ? -1 : place);
    const best = strongest(weights, LINKS);
    replace(
      list,
      heading(place),
      bars(
        best.map((n) => row(n, weights[n])),
        { longest: largest, ordered: true },
      ),
    );
    lines.draw(
      from.nodeOf(place),
      best.map((n) => ({ node: to.nodeOf(n), weight: weights[n] / largest })),
    );
  }

  const source = (place) => (incoming ? map.columns : map.rows)[place];
  const target = (place) => (incoming ? map.rows : map.columns)[place];
  const heading = (place) =>
    h("h4", {}, page.t(incoming ? "attention.lookers" : "attention.looks", { token: source(place).label }));
  const row = (n, weight) => ({
    label: target(n).label,
    value: weight,
    shown: page.language.percent(weight),
    title: page.t("attention.place", { place: target(n).place }),
  });

  function sentence(place) {
    const weights = profile(map, place, incoming);
    const best = strongest(weights, 3).map((n) => `${target(n).label} ${page.language.percent(weights[n])}`);
    return `${page.t(incoming ? "attention.lookers" : "attention.looks", { token: source(place).label })} ${best.join(", ")}`;
  }

  return { element, show };
}
