// The state of the page, which is its address: #fill?lang=zh&model=base&text=...
//
// In: the hash, and what the tabs set. Out: the tab, the language, the values of each tab, and the hash again. The hash
// holds the values of the tab that is shown; those of the others are kept in memory. All values are texts.

const DELAY = 120; // ms; browsers limit how often the address may change

export class State {
  constructor() {
    this.values = new Map();
    this.read();
    addEventListener("pagehide", () => this.write());
  }

  read() {
    const [tab, ...rest] = location.hash.replace(/^#/, "").split("?");
    const query = new URLSearchParams(rest.join("?"));
    this.tab = tab;
    this.lang = query.get("lang") ?? this.lang;
    query.delete("lang");
    if (tab) this.values.set(tab, new Map(query));
    this.written = location.hash;
  }

  // Whether somebody else changed the address.
  get changed() {
    return location.hash !== this.written;
  }

  of(tab) {
    if (!this.values.has(tab)) this.values.set(tab, new Map());
    return {
      get: (name, fallback = "") => this.values.get(tab).get(name) ?? fallback,
      has: (name) => this.values.get(tab).has(name),
      set: (name, value) => {
        this.values.get(tab).set(name, String(value));
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.write(), DELAY);
      },
    };
  }

  // Shows another tab: a new entry of the history, so that "back" returns.
  open(tab) {
    this.write();
    const first = !this.tab;
    this.tab = tab;
    this.write(!first);
  }

  write(push = false) {
    clearTimeout(this.timer);
    const query = new URLSearchParams({ lang: this.lang });
    for (const [name, value] of this.values.get(this.tab) ?? []) query.set(name, value);
    const hash = `#${this.tab}?${query}`;
    if (hash === this.written) return;
    history[push ? "pushState" : "replaceState"](null, "", hash);
    this.written = location.hash;
  }
}
