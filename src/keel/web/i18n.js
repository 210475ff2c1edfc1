// The texts of the page in one language, and its numbers.
//
// In: a language, a key, values. Out: text. A key that a language lacks is an error of the page, and a test finds it.

import en from "./strings/en.js";
import zh from "./strings/zh.js";

export const LANGUAGES = { en: { name: "English", tag: "en", strings: en }, zh: { name: "中文", tag: "zh-CN", strings: zh } };

export const preferred = () => (navigator.languages.find((one) => /^(en|zh)\b/.test(one)) ?? "en").slice(0, 2);

export class Language {
  constructor(name) {
    this.name = Object.hasOwn(LANGUAGES, name) ? name : "en";
    const { strings, tag } = LANGUAGES[this.name];
    this.strings = strings;
    this.whole = new Intl.NumberFormat(tag);
    this.shares = new Intl.NumberFormat(tag, { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });
    this.digits = new Map();
  }

  // "{count} tokens" with {count: 3}
  text(key, values = {}) {
    const found = this.strings[key];
    if (found === undefined) throw new Error(`no text for ${key}`);
    return found.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
  }

  has(key) {
    return key in this.strings;
  }

  count(value) {
    return this.whole.format(value);
  }

  percent(value) {
    return this.shares.format(value);
  }

  number(value, digits = 3) {
    if (!this.digits.has(digits)) {
      const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
      this.digits.set(digits, new Intl.NumberFormat(LANGUAGES[this.name].tag, options));
    }
    return this.digits.get(digits).format(value);
  }
}
