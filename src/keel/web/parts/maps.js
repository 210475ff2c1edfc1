// Attention maps as arrays: decoding, means, subsets, rankings.
//
// In: base64 of little-endian float32, or arrays. Out: maps { rows, columns, values }: `rows` and `columns` are tokens,
// `values` holds rows x columns weights; row i is where token i looks.

export function bytes(base64) {
  const text = atob(base64);
  const found = new Uint8Array(text.length);
  for (let n = 0; n < text.length; n += 1) found[n] = text.charCodeAt(n);
  return found;
}

export const floats = (base64) => new Float32Array(bytes(base64).buffer);

// The mean of `count` arrays of `size` numbers that follow each other.
export function mean(values, count) {
  const size = values.length / count;
  const found = new Float32Array(size);
  for (let k = 0; k < count; k += 1) {
    const from = k * size;
    for (let n = 0; n < size; n += 1) found[n] += values[from + n] / count;
  }
  return found;
}

// [CLS], [SEP] and the like: they stand in no text. A [MASK] stands in the text, and stays.
export const isFrame = (token) => token.start === null;

// The map of the tokens of the text only; each row is scaled so that it sums to 1 again.
export function withoutFrame({ rows, columns, values }) {
  const keep = (tokens) => tokens.flatMap((token, n) => (isFrame(token) ? [] : [n]));
  const [kept, across] = [keep(rows), keep(columns)];
  const found = new Float32Array(kept.length * across.length);
  kept.forEach((row, n) => {
    const from = row * columns.length;
    let sum = 0;
    for (const column of across) sum += values[from + column];
    across.forEach((column, m) => {
      found[n * across.length + m] = sum > 0 ? values[from + column] / sum : 0;
    });
  });
  return { rows: kept.map((n) => rows[n]), columns: across.map((n) => columns[n]), values: found };
}

// Where a token looks (a row), or how much each token looks at it (a column).
export function profile({ rows, columns, values }, at, incoming) {
  if (!incoming) return values.subarray(at * columns.length, (at + 1) * columns.length);
  return Float32Array.from(rows, (_, n) => values[n * columns.length + at]);
}

// The places of the largest values, largest first.
export function strongest(values, count) {
  const found = [];
  values.forEach((value, place) => {
    if (found.length === count && value <= values[found[count - 1]]) return;
    let at = found.length;
    while (at > 0 && values[found[at - 1]] < value) at -= 1;
    found.splice(at, 0, place);
    if (found.length > count) found.pop();
  });
  return found;
}

// The row with the strongest link between two different tokens of the text.
export function liveliest({ rows, columns, values }) {
  let [best, row] = [-1, 0];
  rows.forEach((from, n) => {
    if (isFrame(from)) return;
    columns.forEach((to, m) => {
      const value = values[n * columns.length + m];
      if (to.place === from.place && rows === columns) return;
      if (!isFrame(to) && value > best) [best, row] = [value, n];
    });
  });
  return row;
}

// The largest value of each cell of a grid of at most `size` x `size` cells, as the server's thumbnails.
export function thumbnail(values, rows, columns, size) {
  const [height, width] = [Math.min(size, rows), Math.min(size, columns)];
  const found = new Uint8Array(height * width);
  for (let n = 0; n < rows; n += 1) {
    const y = Math.floor((n * height) / rows);
    for (let m = 0; m < columns; m += 1) {
      const at = y * width + Math.floor((m * width) / columns);
      found[at] = Math.max(found[at], Math.round(255 * values[n * columns + m]));
    }
  }
  return { height, width, values: found };
}
