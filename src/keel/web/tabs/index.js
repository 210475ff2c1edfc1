// The tabs in the order in which they are shown. A new tab is a file here and its texts in strings/.

import { api } from "./api.js";
import { attention } from "./attention.js";
import { fill } from "./fill.js";
import { runs } from "./runs.js";
import { search } from "./search.js";
import { tasks } from "./tasks.js";
import { tokens } from "./tokens.js";
import { why } from "./why.js";

export const TABS = [fill, attention, why, tasks, tokens, search, runs, api];
