// Numbers as colours on a canvas.
//
// In: numbers from 0 to 1. Out: pixels between the style sheet's --heat-zero and --heat. The colour follows the square
// root of the number: among 512 tokens most weights are below 0.01, and would all look like none.

import { h } from "../dom.js";
import { colour } from "../theme.js";

export const strength = (value, largest = 1) => Math.sqrt(Math.max(0, Math.min(1, value / largest)));

// 256 colours, from none to all, as [red, green, blue].
export function palette() {
  const [zero, full] = [colour("--heat-zero"), colour("--heat")];
  return Array.from({ length: 256 }, (_, n) =>
    zero.map((from, channel) => Math.round(from + ((full[channel] - from) * n) / 255)),
  );
}

// A canvas with one pixel for each value.
export function image(values, width, height, largest, colours = palette()) {
  const canvas = h("canvas", { width, height, "aria-hidden": "true" });
  const pixels = new ImageData(width, height);
  const words = new Uint32Array(pixels.data.buffer);
  const packed = Uint32Array.from(
    colours,
    ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0,
  );
  for (let n = 0; n < words.length; n += 1) words[n] = packed[Math.round(255 * strength(values[n], largest))];
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}

// Draws anew when the colours change, for as long as the element is part of the page.
export function onTheme(element, draw) {
  const listener = () => {
    if (element.isConnected) draw();
    else removeEventListener("keel:theme", listener);
  };
  addEventListener("keel:theme", listener);
}
