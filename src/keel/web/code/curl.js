// A question to the server as a line of a shell.
//
// In: where the server is, { path, body }, whether it needs a key. Out: text for any POSIX shell. JSON has no line breaks
// of its own, and what could move a terminal's cursor or turn its text around is written as \uXXXX.

const UNSEEN = /[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

// JSON that can be read and pasted: also the literal of a text in Python.
export const json = (value) =>
  JSON.stringify(value).replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);

export const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function curl(origin, { path, body }, needsKey) {
  const parts = [
    `curl -s ${quoted(origin + path)}`,
    needsKey && '-H "authorization: Bearer $KEEL_API_KEY"',
    "-H 'content-type: application/json'",
    `-d ${quoted(json(body))}`,
  ];
  return parts.filter(Boolean).join(" \\\n  ");
}
