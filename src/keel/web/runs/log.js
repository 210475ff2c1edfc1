// The log of a run as it grows.
//
// In: the run's id. Out: its entries in order of step; `grow()` asks for what was written since, and says whether there
// was anything. A run that is resumed repeats steps: what it wrote before about these is dropped.

import { get } from "../api.js";

export class Log {
  constructor(id) {
    Object.assign(this, { id, next: 0, train: [], evaluation: [] });
  }

  async grow(signal) {
    let grown = false;
    for (;;) {
      const { entries, next } = await get(`/v1/runs/${encodeURIComponent(this.id)}/metrics?after=${this.next}`, signal);
      if (next < this.next) Object.assign(this, { train: [], evaluation: [] });
      grown ||= entries.length > 0 || next < this.next;
      for (const entry of entries) this.add(entry);
      if (next <= this.next) {
        this.next = next;
        return grown;
      }
      this.next = next;
    }
  }

  add(entry) {
    const known = this[entry.kind];
    if (!Array.isArray(known) || !Number.isFinite(entry.step)) return;
    if (known.length && known.at(-1).step >= entry.step) {
      for (const kind of ["train", "evaluation"]) {
        while (this[kind].length && this[kind].at(-1).step > entry.step) this[kind].pop();
      }
      while (known.length && known.at(-1).step >= entry.step) known.pop();
    }
    known.push(entry);
  }
}
