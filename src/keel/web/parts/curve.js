// A chart of curves as SVG.
//
// In: a title, series { name, points [[x, y], ...], style, colour }, how to write x and y. Out: a figure. `style`: line,
// faint (below the others, not in the legend), dots (a mark at each point, joined), level (dashed). Pointing at the chart
// says the values at that place; a description has the last ones.

import { h, replace, svg } from "../dom.js";

const [WIDTH, HEIGHT] = [440, 250];
const [LEFT, RIGHT, TOP, BOTTOM] = [52, 14, 10, 26];
const MOST = 400; // points of a line

export function curve(page, { title, series, writeX, writeY }) {
  const kept = series.map((one) => ({ ...one, points: one.points.filter((point) => point.every(Number.isFinite)) }));
  const drawn = kept.filter((one) => one.points.length);
  const all = drawn.flatMap((one) => one.points);
  const x = scale(all.map(([value]) => value), LEFT, WIDTH - RIGHT, true);
  const y = scale(all.map(([, value]) => value), HEIGHT - BOTTOM, TOP);
  const named = drawn.filter((one) => one.style !== "faint");
  const last = named.map((one) => `${one.name}: ${writeY(one.points.at(-1)[1])}`).join("; ");
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${last}` },
    y.ticks.map((value) => tick(LEFT, y(value), WIDTH - RIGHT, writeY(value), "end", -6, 4)),
    x.ticks.map((value) => svg("text", { x: x(value), y: HEIGHT - 8, "text-anchor": "middle" }, writeX(value))),
    drawn.map((one) => line(one, x, y)),
  );
  const pointer = svg("line", { class: "curve-pointer", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  picture.append(pointer);
  const legend = h("p", { class: "curve-legend" });
  const say = (values) => replace(legend, named.map((one, n) => key(one, values[n])));
  const rest = () => {
    pointer.setAttribute("visibility", "hidden");
    say(named.map((one) => writeY(one.points.at(-1)[1])));
  };
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const wanted = x.back(((event.clientX - box.left) / box.width) * WIDTH);
    const near = named.map((one) => nearest(one.points, wanted));
    if (!near.length) return;
    const at = x(near.reduce((one, other) => (Math.abs(other[0] - wanted) < Math.abs(one[0] - wanted) ? other : one))[0]);
    for (const name of ["x1", "x2"]) pointer.setAttribute(name, at);
    pointer.setAttribute("visibility", "visible");
    say(near.map(([place, value]) => `${writeY(value)} (${writeX(place)})`));
  });
  picture.addEventListener("pointerleave", rest);
  rest();
  return h("figure", { class: "card curve" }, h("figcaption", {}, title), legend, picture);
}

function key({ name, colour = 0, style }, value) {
  const swatch = h("span", { class: `swatch ${style}`, "aria-hidden": "true", style: { "--kind": `var(--series-${colour})` } });
  return h("span", {}, swatch, `${name} `, h("b", {}, value));
}

function tick(from, y, to, text, anchor, dx, dy) {
  return [
    svg("line", { class: "curve-grid", x1: from, x2: to, y1: y, y2: y }),
    svg("text", { x: from + dx, y: y + dy, "text-anchor": anchor }, text),
  ];
}

function line({ points, style, colour = 0 }, x, y) {
  const places = thin(points).map(([one, other]) => `${x(one).toFixed(1)} ${y(other).toFixed(1)}`);
  const props = { class: `curve-line ${style}`, style: { "--kind": `var(--series-${colour})` } };
  const path = svg("path", { ...props, d: `M ${places.join(" L ")}` });
  if (style !== "dots" && points.length > 1) return path;
  const dots = points.map(([one, other]) => svg("circle", { ...props, cx: x(one), cy: y(other), r: 3 }));
  return [path, dots];
}

export function thin(points, most = MOST) {
  const step = Math.ceil(points.length / most);
  return step <= 1 ? points : points.filter((_, n) => n % step === 0 || n === points.length - 1);
}

// The mean of the points before and after each one.
export function smooth(points, share = 40) {
  const reach = Math.floor(points.length / share / 2);
  if (reach < 1) return points;
  const sums = [0];
  for (const [, value] of points) sums.push(sums.at(-1) + value);
  return points.map(([place], n) => {
    const [from, to] = [Math.max(0, n - reach), Math.min(points.length, n + reach + 1)];
    return [place, (sums[to] - sums[from]) / (to - from)];
  });
}

function nearest(points, wanted) {
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < wanted) low = middle;
    else high = middle;
  }
  return wanted - points[low][0] < points[high][0] - wanted ? points[low] : points[high];
}

// From values to places of the drawing, with round ticks.
function scale(values, start, end, fromZero = false) {
  let [low, high] = [fromZero ? 0 : Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const room = Math.abs(high) / 4 || 0.5;
  if (high <= low) [low, high] = fromZero ? [0, 1] : [low - room, low + room];
  const place = (value) => start + ((value - low) / (high - low)) * (end - start);
  place.back = (at) => low + ((at - start) / (end - start)) * (high - low);
  place.ticks = ticks(low, high);
  return place;
}

export function ticks(low, high, wanted = 5) {
  const power = 10 ** Math.floor(Math.log10((high - low) / wanted));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => (high - low) / one <= wanted + 1) ?? 10 * power;
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9) || 0; n * step <= high + step * 1e-9; n += 1) found.push(n * step);
  return found;
}
