// One map on a canvas, large: rows look at columns.
//
// In: a map, and what to do when the pointer is over a cell. Out: { element, show(map, label), mark(row, column) }.
// Marking draws the finished image and two frames, so it costs the same for 5 tokens and for 500. Up to LABELLED
// tokens their names stand at the edges.

import { h } from "../dom.js";
import { image, onTheme } from "./heat.js";
import { colour } from "../theme.js";

const LABELLED = 44;
const MOST_CELL = 34; // pixels
const FONT = '13px system-ui, "Noto Sans CJK SC", sans-serif';
const EDGE = 112; // the widest label

export function heatMap({ over, out, press }) {
  const canvas = h("canvas", { class: "heat-map", role: "img" });
  const element = h("div", { class: "heat-frame" }, canvas);
  const context = canvas.getContext("2d");
  let map = null;
  let plot = null;
  let marked = {};

  function show(shown, label) {
    map = shown;
    marked = {};
    canvas.setAttribute("aria-label", label);
    layOut();
  }

  function layOut() {
    const room = element.clientWidth;
    if (!map || !room) return;
    plot = plan(context, map, room);
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(plot.width * ratio);
    canvas.height = Math.round(plot.height * ratio);
    canvas.style.width = `${plot.width}px`;
    canvas.style.height = `${plot.height}px`;
    paint();
  }

  // The colours of the cells, once for each map, width and theme.
  function paint() {
    if (!plot) return;
    const largest = map.values.reduce((most, value) => Math.max(most, value), 1e-9);
    plot.cells = image(map.values, map.columns.length, map.rows.length, map.largest ?? largest);
    plot.ink = { text: css("--text"), muted: css("--muted"), mark: css("--mark"), edge: css("--edge") };
    draw();
  }

  function draw() {
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, plot.width, plot.height);
    context.imageSmoothingEnabled = plot.cellWidth * ratio < 1; // a cell below a pixel: averages, or cells would be lost
    context.imageSmoothingQuality = "high";
    context.drawImage(plot.cells, plot.left, plot.top, plot.across, plot.down);
    context.strokeStyle = plot.ink.edge;
    context.strokeRect(plot.left - 0.5, plot.top - 0.5, plot.across + 1, plot.down + 1);
    if (plot.named) drawNames(context, map, plot, marked);
    drawMarks(context, plot, marked);
  }

  function mark(row, column) {
    if (!plot || (marked.row === row && marked.column === column)) return;
    marked = { row, column };
    draw();
  }

  function cell({ offsetX, offsetY }) {
    const column = Math.floor((offsetX - plot.left) / plot.cellWidth);
    const row = Math.floor((offsetY - plot.top) / plot.cellHeight);
    const inside = row >= 0 && column >= 0 && row < map.rows.length && column < map.columns.length;
    return inside ? { row, column } : null;
  }

  canvas.addEventListener("pointermove", (event) => plot && over(cell(event)));
  canvas.addEventListener("pointerleave", () => out());
  canvas.addEventListener("click", (event) => plot && press(cell(event)));
  new ResizeObserver(
    () => element.clientWidth && Math.abs(element.clientWidth - (plot?.room ?? 0)) > 1 && layOut(),
  ).observe(element);
  onTheme(element, paint);
  return { element, canvas, show, mark };
}

const css = (name) => `rgb(${colour(name).join(" ")})`;

// Where things are: labels at the left and at the top, square cells of whole pixels where there is room for them.
function plan(context, { rows, columns }, room) {
  context.font = FONT;
  const named = Math.max(rows.length, columns.length) <= LABELLED && room / columns.length > 9;
  const widest = (tokens) => Math.min(EDGE, Math.max(...tokens.map((token) => context.measureText(token.label).width)));
  const left = named ? Math.ceil(widest(rows)) + 10 : 1;
  const top = named ? Math.ceil(widest(columns)) + 10 : 1;
  const fits = (room - left - 2) / columns.length;
  const cell = Math.min(MOST_CELL, fits >= 3 ? Math.floor(fits) : fits);
  const [across, down] = [cell * columns.length, cell * rows.length];
  const size = { left, top, across, down, width: Math.ceil(left + across + 1), height: Math.ceil(top + down + 1) };
  return { ...size, room, cellWidth: cell, cellHeight: cell, named: named && cell >= 9 };
}

function drawNames(context, { rows, columns }, plot, marked) {
  context.font = FONT;
  context.textBaseline = "middle";
  const style = (bold) => {
    context.fillStyle = bold ? plot.ink.text : plot.ink.muted;
    context.font = bold ? `600 ${FONT}` : FONT;
  };
  rows.forEach((token, n) => {
    style(n === marked.row);
    context.textAlign = "right";
    context.fillText(token.label, plot.left - 6, plot.top + (n + 0.5) * plot.cellHeight, EDGE);
  });
  columns.forEach((token, n) => {
    style(n === marked.column);
    context.save();
    context.translate(plot.left + (n + 0.5) * plot.cellWidth, plot.top - 6);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(token.label, 0, 0, EDGE);
    context.restore();
  });
}

function drawMarks(context, plot, { row, column }) {
  context.strokeStyle = plot.ink.mark;
  context.lineWidth = 1.5;
  const gap = Math.min(plot.cellWidth, plot.cellHeight) < 4 ? 2.5 : 0.5; // a row as thin as the frame stays visible in it
  const frame = (x, y, width, height) => context.strokeRect(x - gap, y - gap, width + 2 * gap, height + 2 * gap);
  if (row >= 0) frame(plot.left, plot.top + row * plot.cellHeight, plot.across, plot.cellHeight);
  if (column >= 0) frame(plot.left + column * plot.cellWidth, plot.top, plot.cellWidth, plot.down);
  context.lineWidth = 1;
}
