// A question as lines of Python: with keel on this machine, over HTTP with the standard library, with the openai package.
//
// In: where the server is, { path, body, ranks }, whether it needs a key. Out: a program that ends with `answer` (and
// `scores`, where the texts are a query and lines). `ranks`: the first text is a query for the others.

import { json } from "./curl.js";

const WIDE = 88; // characters of a line
const STEP = "    ";
const KEY = 'os.environ["KEEL_API_KEY"]';

export function literal(value, indent = "") {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return typeof value === "string" ? json(value) : String(value);
  const inner = indent + STEP;
  const items = (deeper) =>
    Array.isArray(value)
      ? value.map((one) => literal(one, deeper))
      : Object.entries(value).map(([name, one]) => `${json(name)}: ${literal(one, deeper)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const short = `${open}${items(inner).join(", ")}${close}`;
  if (indent.length + short.length <= WIDE && !short.includes("\n")) return short;
  return `${open}\n${items(inner).map((item) => `${inner}${item},\n`).join("")}${indent}${close}`;
}

// f(1, b=2); every argument on its own line where it is long.
function call(name, positional, named = {}) {
  const write = (indent) => [
    ...positional.map((one) => literal(one, indent)),
    ...Object.entries(named).map(([key, one]) => `${key}=${literal(one, indent)}`),
  ];
  const short = `${name}(${write("").join(", ")})`;
  if (short.length <= WIDE && !short.includes("\n")) return short;
  return `${name}(\n${write(STEP).map((one) => `${STEP}${one},\n`).join("")})`;
}

const lines = (...parts) => `${parts.flat().filter((part) => part !== null && part !== false).join("\n")}\n`;

const HERE = {
  "/v1/fill": ({ texts, ...options }) => call("model.fill", texts, options),
  "/v1/predict": ({ inputs }) => call("model.predict", [inputs]),
  "/v1/translate": ({ texts }) => call("model.predict", [texts]),
  "/v1/embed": ({ texts, ...options }) => call("model.embed", [texts], options),
  "/v1/tokens": ({ texts }) => `[model.tokenizer.encode_with_offsets(text) for text in ${literal(texts)}]`,
  "/v1/explain": explained,
};

function explained({ text, pair, method = "attention", ...options }) {
  const shown = method === "attention" ? options : {};
  const asked = method === "attention" ? {} : options;
  const found = call("model.explain", [text], { ...(pair === undefined ? {} : { pair }), method, ...asked });
  return `${found}${call(".as_json", [], shown)}`;
}

export function here({ path, body: { model, ...body }, ranks }) {
  return lines(
    "import keel",
    "",
    `model = keel.load(${literal(model)})  # the folder of this model`,
    `answer = ${HERE[path](body)}`,
    path === "/v1/tokens" && "# for each text its ids, and where they stand in it",
    ranks ? ["scores = answer[1:] @ answer[0]  # of the lines; the first text is the query", "print(scores)"] : "print(answer)",
  );
}

const COSINES = "scores = [sum(a * b for a, b in zip(vectors[0], one)) for one in vectors[1:]]";

export function overHttp(origin, { path, body, ranks }, needsKey) {
  const headers = [`"content-type": "application/json"`, needsKey && `"authorization": f"Bearer {os.environ['KEEL_API_KEY']}"`];
  return lines(
    "import json",
    needsKey && "import os",
    "import urllib.request",
    "",
    `question = ${literal(body)}`,
    "request = urllib.request.Request(",
    `${STEP}${literal(origin + path)},`,
    `${STEP}json.dumps(question).encode(),`,
    `${STEP}{${headers.filter(Boolean).join(", ")}},`,
    ")",
    "with urllib.request.urlopen(request) as reply:",
    `${STEP}answer = json.load(reply)`,
    ranks ? ['vectors = answer["vectors"]  # the first is that of the query', COSINES, "print(scores)"] : "print(answer)",
  );
}

export function withOpenai(origin, { body, ranks }, needsKey) {
  return lines(
    needsKey && ["import os", ""],
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${literal(`${origin}/v1`)}, api_key=${needsKey ? KEY : '"not needed"'})`,
    `found = ${call("client.embeddings.create", [], { model: body.model, input: body.texts })}`,
    "answer = [one.embedding for one in found.data]",
    ranks ? ["vectors = answer  # the first is that of the query", COSINES, "print(scores)"] : "print(answer)",
  );
}
