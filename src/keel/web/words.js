// Texts as units that can be masked, and texts by code points.
//
// In: a text. Out: its words (Chinese and Japanese characters each by themselves, as most vocabularies have them), marks
// and [MASK]s, with what stands between them. The server counts offsets in code points, JavaScript in UTF-16.

export const MASK = "[MASK]";
const CJK = "\\p{sc=Han}\\p{sc=Hiragana}\\p{sc=Katakana}";
const LETTERS = `[[\\p{L}\\p{N}\\p{M}]--[${CJK}]]`;
const UNIT = new RegExp(`\\[MASK\\]|[${CJK}]|${LETTERS}+(?:['’\\-]${LETTERS}+)*|\\S`, "gv");

// [{ text, start, end, word }], with `word` false for marks; gaps of white space are not units.
export function units(text) {
  return Array.from(text.matchAll(UNIT), ({ 0: found, index }) => ({
    text: found,
    start: index,
    end: index + found.length,
    word: found === MASK || /[\p{L}\p{N}]/u.test(found),
  }));
}

export const maskCount = (text) => text.split(MASK).length - 1;

// A text that is cut by offsets in code points.
export function byPoints(text) {
  const points = Array.from(text);
  return { length: points.length, slice: (start, end) => points.slice(start, end).join("") };
}
