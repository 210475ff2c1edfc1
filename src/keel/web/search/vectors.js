// The vectors of lines, computed once for each model and kept in memory: a second query needs one vector more.
//
// In: a model, texts, a prompt. Out: for each text its vector of length 1, so that a dot product is the cosine.
//
// Notable choice: a batch is small, so that progress is seen and other people's requests are answered in between; where
// the server's queue is full, the same batch is sent again a little later.

import { ApiError, post } from "../api.js";

const BATCH = 64; // texts
const LONGEST = 100_000; // characters of a batch
const MOST = 32e6; // numbers that are kept: 128 MB
const WAITS = [500, 1000, 2000, 4000, 8000]; // ms after a 429

const kept = new Map(); // of "model and prompt" -> Map of text -> Float32Array

const nameOf = (model, prompt) => JSON.stringify([model.id, prompt]);
const vectorsOf = (name) => kept.get(name) ?? kept.set(name, new Map()).get(name);

// The texts of these that have no vector yet, each once.
export function unknown(model, texts, prompt) {
  const found = vectorsOf(nameOf(model, prompt));
  return [...new Set(texts)].filter((text) => !found.has(text));
}

// `tell(done, of)`: how many of the vectors that were missing are there.
export async function embed(model, texts, { prompt = "", limits, signal, tell = () => {} }) {
  const name = nameOf(model, prompt);
  const missing = unknown(model, texts, prompt);
  const found = vectorsOf(name);
  let done = 0;
  for (const batch of batches(missing, limits)) {
    tell(done, missing.length);
    const body = { model: model.id, texts: batch, normalize: true, truncate: true };
    const answer = await patiently(() => post("/v1/embed", prompt ? { ...body, prompt } : body, signal, false), signal);
    answer.vectors.forEach((vector, n) => found.set(batch[n], Float32Array.from(vector)));
    done += batch.length;
  }
  tell(done, missing.length);
  const vectors = texts.map((text) => found.get(text));
  forget(name, texts, model.width);
  return vectors;
}

export function* batches(texts, limits) {
  const [most, longest] = [Math.min(BATCH, limits.texts), Math.min(LONGEST, limits.characters)];
  let batch = [];
  let size = 0;
  for (const text of texts) {
    if (batch.length && (batch.length === most || size + text.length > longest)) {
      yield batch;
      [batch, size] = [[], 0];
    }
    batch.push(text);
    size += text.length;
  }
  if (batch.length) yield batch;
}

async function patiently(ask, signal) {
  for (const wait of WAITS) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 429) throw error;
      await new Promise((resolve) => setTimeout(resolve, wait));
      signal?.throwIfAborted();
    }
  }
  return ask();
}

// Above the limit of memory: what other models or earlier lines have left.
function forget(name, texts, width) {
  const count = () => [...kept.values()].reduce((sum, vectors) => sum + vectors.size, 0) * width;
  if (count() <= MOST) return;
  for (const other of kept.keys()) if (other !== name) kept.delete(other);
  if (count() <= MOST) return;
  const wanted = new Set(texts);
  for (const text of kept.get(name).keys()) if (!wanted.has(text)) kept.get(name).delete(text);
}

export const cosine = (one, other) => one.reduce((sum, value, n) => sum + value * other[n], 0);
