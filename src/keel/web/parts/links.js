// Lines from one token to those it looks at most, drawn over the strip.
//
// In: the container that the SVG covers, the node of the token, nodes and weights of the others. Out: curves, for the
// eye only: the list of the strongest links says the same. What would leave the container is cut off.

import { replace, svg } from "../dom.js";

export function links(container) {
  const drawing = svg("svg", { class: "links", "aria-hidden": "true" });

  // `targets`: [{ node, weight (0 to 1) }]
  function draw(source, targets) {
    if (!source) return replace(drawing);
    const frame = container.getBoundingClientRect();
    const place = (node) => {
      const box = node.getBoundingClientRect();
      const top = box.top - frame.top;
      return { x: box.left + box.width / 2 - frame.left, top: top + 2, bottom: top + box.height };
    };
    const from = place(source);
    const paths = targets
      .filter(({ node }) => node && node !== source)
      .map(({ node, weight }) => curve(from, place(node), weight));
    replace(drawing, paths);
  }

  return { element: drawing, draw };
}

// Over the line where both are on it; else from the edge of the one to the facing edge of the other.
function curve(from, to, weight) {
  const down = to.top > from.bottom;
  const up = from.top > to.bottom;
  const [start, end] = [down ? from.bottom : from.top, up ? to.bottom : to.top];
  const lift = down || up ? (end - start) / 2 : -10 - Math.min(22, Math.abs(from.x - to.x) * 0.08);
  const bend = down || up ? end - lift : end + lift;
  const path = `M ${from.x} ${start} C ${from.x} ${start + lift}, ${to.x} ${bend}, ${to.x} ${end}`;
  const style = { "stroke-width": `${(0.8 + 4 * weight).toFixed(2)}px`, opacity: (0.35 + 0.6 * weight).toFixed(2) };
  return svg("path", { d: path, style });
}
