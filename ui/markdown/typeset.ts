// Rendering of formulas with KaTeX.
import "katex/dist/katex.min.css";
import katex from "katex";

const maxCharacters = 5000;

export function typeset(elements: Iterable<HTMLElement>): void {
  for (const element of elements) {
    const text = element.textContent ?? "";
    if (text.length > maxCharacters) continue;
    const set = document.createElement("span");
    const displayMode = element.classList.contains("display");
    katex.render(text, set, {
      displayMode,
      throwOnError: false,
      strict: "ignore",
      trust: false,
      maxSize: 20,
      maxExpand: 200,
    });
    element.replaceWith(set);
  }
}
