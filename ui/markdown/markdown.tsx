// Markdown written by a model, rendered as HTML. The text is not trusted: the HTML is sanitised, links open in a new tab, and
// only images in data URLs are shown, so that no text can cause a request to another server.

import DOMPurify from "dompurify";
import { Marked } from "marked";
import { memo } from "preact/compat";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { copyText } from "../base/clipboard.ts";
import { t } from "../base/language.ts";
import { notify } from "../base/notice.tsx";
import { blocksOf } from "./blocks.ts";
import { formulas } from "./formulas.ts";

/** Maximum length in characters of rendered markdown. Longer texts are shown as plain text. */
const maxCharacters = 1_000_000;

const marked = new Marked({ gfm: true, breaks: false, async: false, extensions: formulas });
const purify = DOMPurify(window);
const forbidden = [
  "style",
  "dialog",
  "form",
  "input",
  "button",
  "textarea",
  "select",
  "iframe",
  "object",
  "embed",
  "video",
  "audio",
];

purify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A" && node.hasAttribute("href")) {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
  keepOwnClasses(node);
  const source = node.getAttribute("src");
  if (source !== null && !/^data:image\/(?:png|jpeg|gif|webp);/i.test(source)) {
    const shown = document.createElement("span");
    shown.className = "blocked-image";
    shown.textContent = `[${node.getAttribute("alt") ?? ""}](${source})`;
    node.replaceWith(shown);
  }
});

/** Removes CSS classes that could make a text look like a part of the page. */
function keepOwnClasses(node: Element): void {
  const kept = [...node.classList].filter((name) => /^(?:language-[\w+#-]+|math|display)$/.test(name));
  if (kept.length === 0) node.removeAttribute("class");
  else node.className = kept.join(" ");
}

/** Returns sanitised HTML. A text nested too deeply for the parser is returned as plain text. */
export function htmlOf(markdown: string): string {
  let html: string;
  try {
    html = marked.parse(markdown) as string;
  } catch {
    html = `<pre>${markdown.replaceAll("&", "&amp;").replaceAll("<", "&lt;")}</pre>`;
  }
  return purify.sanitize(html, {
    USE_PROFILES: { html: true },
    FORBID_TAGS: forbidden,
    FORBID_ATTR: ["style", "id", "name", "srcset", "background", "poster", "ping"],
    ALLOW_DATA_ATTR: false,
    ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|data:image\/(?:png|jpeg|gif|webp);|#)/i,
  });
}

export function Markdown({ text, isGrowing }: { readonly text: string; readonly isGrowing: boolean }) {
  if (text.length > maxCharacters) return <pre class="plain">{text}</pre>;
  const blocks = blocksOf(text);
  return (
    <div class="markdown">
      {blocks.map((block, i) => (
        <Block key={i} text={block} isGrowing={isGrowing && i === blocks.length - 1} />
      ))}
    </div>
  );
}

const Block = memo(function Block({ text, isGrowing }: { readonly text: string; readonly isGrowing: boolean }) {
  const html = useMemo(() => htmlOf(text), [text]);
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!isGrowing && element.current !== null) void finish(element.current);
  }, [html, isGrowing]);
  return <div ref={element} dangerouslySetInnerHTML={{ __html: html }} />;
});

/**
 * Adds copy buttons, syntax colours, diagrams and formulas to rendered markdown. Their libraries are loaded only when a text
 * needs them.
 */
async function finish(element: HTMLElement): Promise<void> {
  for (const code of element.querySelectorAll<HTMLElement>("pre > code")) {
    addCopy(code);
    const [, language = ""] = /language-([\w+#-]+)/.exec(code.className) ?? [];
    if (language === "mermaid") await (await import("./diagram.ts")).draw(code);
    else if (language !== "") await (await import("./highlight.ts")).highlight(code, language);
  }
  const math = element.querySelectorAll<HTMLElement>("code.math");
  if (math.length > 0) (await import("./typeset.ts")).typeset(math);
}

function addCopy(code: HTMLElement): void {
  const frame = code.parentElement;
  if (frame === null || frame.querySelector(".copy-code") !== null) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy-code";
  button.textContent = t("copy");
  button.onclick = async () => {
    await copyText(code.textContent ?? "");
    notify(t("copied"));
  };
  frame.append(button);
}
