// Diagrams (Mermaid) in rendered markdown. Mermaid's strict mode allows neither scripts nor HTML labels.
import DOMPurify from "dompurify";
import mermaid from "mermaid";

const maxCharacters = 20_000;
let count = 0;

mermaid.initialize({ startOnLoad: false, securityLevel: "strict", htmlLabels: false, maxTextSize: maxCharacters });

/** Replaces a diagram's code by the diagram. Invalid code stays unchanged. */
export async function draw(code: HTMLElement): Promise<void> {
  const text = code.textContent ?? "";
  if (text.length > maxCharacters) return;
  const id = `diagram-${++count}`;
  try {
    const { svg } = await mermaid.render(id, text);
    const frame = document.createElement("div");
    frame.className = "diagram";
    frame.innerHTML = DOMPurify.sanitize(svg, { USE_PROFILES: { svg: true, svgFilters: true }, ADD_TAGS: ["style"] });
    code.parentElement?.replaceWith(frame);
  } catch {
    document.getElementById(`d${id}`)?.remove();
  }
}
