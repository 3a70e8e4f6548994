// Formulas in markdown: $…$, $$…$$, \(…\) and \[…\] become `code.math` elements, which typeset.ts renders later.
import type { TokenizerAndRendererExtension } from "marked";

export const formulas: TokenizerAndRendererExtension[] = [
  {
    name: "display-math",
    level: "block",
    start: (source) => source.search(/\$\$|\\\[/),
    tokenizer(source) {
      const [raw, dollars, brackets] = /^(?:\$\$([^$]+)\$\$|\\\[([\s\S]+?)\\\])(?:\n|$)/.exec(source) ?? [];
      if (raw === undefined) return undefined;
      return { type: "display-math", raw, text: (dollars ?? brackets ?? "").trim() };
    },
    renderer: ({ text }) => `<p><code class="math display">${escaped(String(text))}</code></p>\n`,
  },
  {
    name: "inline-math",
    level: "inline",
    start: (source) => source.search(/\$|\\\(/),
    tokenizer(source) {
      // A dollar sign followed by a space does not begin a formula, and one followed by a digit does not end it, because
      // amounts of money contain dollar signs.
      const [raw, dollars, brackets] =
        /^(?:\$(?!\s)((?:\\.|[^$\\\n])+?)(?<!\s)\$(?!\d)|\\\(([^\n]+?)\\\))/.exec(source) ?? [];
      if (raw === undefined) return undefined;
      return { type: "inline-math", raw, text: dollars ?? brackets ?? "" };
    },
    renderer: ({ text }) => `<code class="math">${escaped(String(text))}</code>`,
  },
];

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
