// What an explanation is about, in words: "the label “captain” (logit)".
//
// In: the `answer` of /v1/explain. Out: texts.

export function answerName(page, answer, given) {
  const { kind, label, word, span } = answer;
  const shown = {
    label,
    word,
    span: span ?? "",
    choice: kind === "choice" ? given.pair?.[answer.choice] : "",
    tokens: (answer.tokens ?? []).join(", "),
  };
  return page.t(`why.answer.${kind.replace(" ", "_")}`, shown);
}

export const scaleName = (page, answer) => page.t(`why.scale.${answer.scale ?? "cosine"}`);
