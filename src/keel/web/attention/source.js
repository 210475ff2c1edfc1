// The attention of one text: what the server has sent, and what is asked when something else is shown.
//
// In: a model, a text or a pair. Out: maps of one head, of a layer's mean, of the rollout, of a translator's decoder.
//
// Notable choice: the first answer brings thumbnails of all heads and the weights of one; the weights of another head
// are asked when it is chosen (512 tokens: 1 MB a head), and the last ones are kept.

import { post } from "../api.js";
import { bytes, floats, mean, thumbnail } from "../parts/maps.js";

const THUMBNAIL = 32; // cells
const KEPT = 16e6; // numbers, 64 MB

export class Source {
  // `first`: the body's layer and head of the first question, { layer, head }.
  static async open(model, given, first, signal) {
    const question = {
      model: model.id,
      text: given.text,
      encoding: "base64",
      ...(given.pair === undefined ? {} : { pair: given.pair }),
    };
    const chosen = model.heads && model.task !== "translate" ? { layers: [first.layer], heads: [first.head] } : {};
    const answer = await post("/v1/explain", { ...question, thumbnails: THUMBNAIL, ...chosen }, signal);
    return new Source(question, answer, chosen.layers ? first : null);
  }

  constructor(question, answer, first) {
    Object.assign(this, { question, answer, kept: new Map() });
    this.tokens = named(answer.tokens);
    this.mix = answer.mix ?? null;
    [this.layers, this.heads] = answer.thumbnails?.shape ?? [0, 0];
    if (first) this.keep(`${first.layer}:${first.head}`, floats(answer.weights));
    this.cross = answer.cross ? crossOf(answer.cross, this.tokens) : null;
  }

  // { height, width, values } of a head's thumbnail.
  thumbnails() {
    const [, heads, height, width] = this.answer.thumbnails.shape;
    const all = bytes(this.answer.thumbnails.data);
    return (layer, head) => {
      const from = ((layer - 1) * heads + head - 1) * height * width;
      return { height, width, values: all.subarray(from, from + height * width) };
    };
  }

  async head(layer, head, signal) {
    return this.map(await this.weights(`${layer}:${head}`, { layers: [layer], heads: [head] }, signal));
  }

  // Of all heads of a layer.
  async mean(layer, signal) {
    return this.map(
      await this.weights(`${layer}:mean`, { layers: [layer] }, signal, (found) => mean(found, this.heads)),
    );
  }

  async rollout(signal) {
    return this.map(await this.weights("rollout", { thumbnails: 1, rollout: true }, signal));
  }

  map(values) {
    return { rows: this.tokens, columns: this.tokens, values };
  }

  async weights(name, more, signal, finish = (found) => found) {
    if (!this.kept.has(name)) {
      const answer = await post("/v1/explain", { ...this.question, ...more }, signal);
      this.keep(name, finish(floats(answer.rollout ?? answer.weights)));
    }
    return this.kept.get(name);
  }

  keep(name, values) {
    this.kept.set(name, values);
    const most = Math.max(2, Math.floor(KEPT / values.length));
    for (const old of this.kept.keys()) if (this.kept.size > most) this.kept.delete(old);
  }
}

// Tokens as the page shows them: `label`, and `place` in the row. `glued`: it continues the token before it.
export function named(tokens) {
  return tokens.map((token, place) => {
    const before = tokens[place - 1];
    const glued = token.start !== null && before?.end === token.start && before.segment === token.segment;
    return { ...token, place, glued, label: token.text.trim() || token.token };
  });
}

// A decoder's attention to the source: each written token looks at the tokens that were read.
function crossOf({ written, shape, weights, translation }, columns) {
  const [layers, heads, height, width] = shape;
  const all = floats(weights);
  const last = written.length - 1;
  const rows = written.map((text, place) => {
    const frame = place === last;
    const glued = text.startsWith("##");
    return { label: (glued ? text.slice(2) : text) || "␣", place, segment: 0, start: frame ? null : place, end: null, glued };
  });
  const part = (layer, head) =>
    all.subarray(((layer - 1) * heads + head - 1) * height * width, ((layer - 1) * heads + head) * height * width);
  const map = (values) => ({ rows, columns, values });
  return {
    translation,
    layers,
    heads,
    thumbnails: () => (layer, head) => thumbnail(part(layer, head), height, width, THUMBNAIL),
    head: async (layer, head) => map(part(layer, head)),
    mean: async (layer) =>
      map(mean(all.subarray((layer - 1) * heads * height * width, layer * heads * height * width), heads)),
  };
}
